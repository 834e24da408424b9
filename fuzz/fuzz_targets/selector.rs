//! A selector is rejected, or is read as the same selector after it is written again and matches the same objects; two selectors joined
//! match what both match. The first line is one selector, the second another; the lines after them are `key=value` labels.
#![no_main]

use std::borrow::Cow;

use kube_fanout::resource::{FieldTable, Gvr, Object, ObjectParts};
use kube_fanout::selector::{FieldSelector, LabelSelector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.split('\n');
    let (first, second) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    let object = object(lines);
    let both = format!("{first},{second}");
    // Both sides of a comma must be non-empty.
    let stands_alone = |text: &str| text.trim().is_empty();
    let joins = !stands_alone(first) && !stands_alone(second);

    let labels = [first, second].map(LabelSelector::parse);
    for selector in labels.iter().flatten() {
        let read = LabelSelector::parse(&selector.to_string());
        assert_eq!(read.as_ref(), Some(selector));
        assert_eq!(selector.is_empty(), selector.to_string().is_empty());
    }
    if let ([Some(first), Some(second)], true) = (&labels, joins) {
        let both = LabelSelector::parse(&both).expect("both are well-formed");
        let each = first.matches(&object) && second.matches(&object);
        assert_eq!(both.matches(&object), each, "{both}");
    }

    let pods = FieldTable::of(&Gvr::new("", "v1", "pods"));
    let fields = [first, second].map(|text| FieldSelector::parse(text, pods));
    for selector in fields.iter().flatten() {
        let read = FieldSelector::parse(&selector.to_string(), pods);
        assert_eq!(read.as_ref(), Some(selector));
        if let Some(name) = selector.pinned_name() {
            assert!(!selector.matches(&object) || object.key().name() == name);
        }
    }
    if let [Some(first), Some(second)] = &fields {
        let both = FieldSelector::parse(&both, pods).expect("both are well-formed");
        let each = first.matches(&object) && second.matches(&object);
        assert_eq!(both.matches(&object), each, "{both}");
    }
    let named = FieldSelector::named(second);
    let read = FieldSelector::parse(&named.to_string(), pods);
    assert_eq!(read.as_ref(), Some(&named));
    assert_eq!(named.pinned_name(), Some(second));
});

fn object<'a>(lines: impl Iterator<Item = &'a str>) -> Object {
    let labels: Vec<_> = lines
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (Cow::from(key), Cow::from(value)))
        .collect();
    let value = |at: usize| {
        labels
            .get(at)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    };
    let parts = ObjectParts {
        namespace: value(0),
        name: value(1),
        fields: (2..11).map(value).collect(),
        labels,
        ..ObjectParts::default()
    };
    Object::new(parts, b"{}")
}
