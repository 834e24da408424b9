//! Sample objects and selectors for tests.

use super::{LabelSelector, Selector};
use crate::resource::{FieldTable, Gvr, Object, ObjectParts};

/// The selectable fields of pods.
#[must_use]
pub fn pods() -> FieldTable {
    FieldTable::of(&Gvr::new("", "v1", "pods"))
}

/// A pod with these labels.
#[must_use]
pub fn object(labels: &[(&str, &str)]) -> Object {
    let mut fields = vec!["".into(); pods().fields().len()];
    fields[0] = "node-1".into();
    fields[4] = "false".into();
    let labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into()));
    let parts = ObjectParts {
        namespace: "ns".into(),
        name: "p".into(),
        labels: labels.collect(),
        fields,
        ..ObjectParts::default()
    };
    Object::new(parts, b"{}")
}

/// A selector of all objects whose labels match `text`.
#[must_use]
#[allow(clippy::expect_used, reason = "a test fails with its fixture")]
pub fn labelled(text: &str) -> Selector {
    Selector {
        labels: LabelSelector::parse(text).expect("a valid selector"),
        ..Selector::default()
    }
}

/// A selector of all objects with this value of the label `tier`, which sample objects have.
#[must_use]
pub fn tier(value: &str) -> Selector {
    labelled(&format!("tier={value}"))
}
