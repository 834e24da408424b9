//! A selector is refused, or its canonical form is read as the same.
#![no_main]

use kube_fanout::resource::{FieldTable, Gvr};
use kube_fanout::view::selector::{FieldSelector, LabelSelector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(labels) = LabelSelector::parse(text) {
        assert_eq!(LabelSelector::parse(&labels.to_string()), Ok(labels));
    }
    let pods = FieldTable::of(&Gvr::new("", "v1", "pods"));
    if let Ok(fields) = FieldSelector::parse(text, pods) {
        assert_eq!(FieldSelector::parse(&fields.to_string(), pods), Ok(fields));
    }
});
