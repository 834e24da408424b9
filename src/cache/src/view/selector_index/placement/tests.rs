//! The positions of views in the index, and their weights.

use super::*;
use crate::resource::{FieldTable, Gvr};
use crate::selector::FieldSelector;
use crate::selector::samples::labelled;

fn with_fields(text: &str) -> Selector {
    let table = FieldTable::of(&Gvr::new("", "v1", "pods"));
    Selector {
        fields: FieldSelector::parse(text, table).unwrap(),
        ..Selector::default()
    }
}

fn in_namespace(selector: Selector) -> Selector {
    Selector {
        namespace: Some("a".into()),
        ..selector
    }
}

fn placement() -> Placement {
    Placement::new(Hasher::default())
}

fn kinds(placement: &Placement, selector: &Selector) -> Vec<ValueKind> {
    let position = placement.position_for(selector);
    position.iter().map(|(kind, _)| *kind).collect()
}

#[test]
fn one_value_goes_before_a_set_and_a_set_before_a_key() {
    let of = |selector: &Selector| kinds(&placement(), selector);
    assert_eq!(of(&labelled("a,b in (x,y)")), [ValueKind::Label; 2]);
    assert_eq!(
        of(&labelled("a in (x,y,z),b in (x,y)")),
        [ValueKind::Label; 2]
    );
    assert_eq!(of(&labelled("a in (x,y),b=z")), [ValueKind::Label]);
    assert_eq!(of(&labelled("a,!b")), [ValueKind::Key]);
    assert_eq!(
        of(&in_namespace(labelled("a,b in (x,y)"))),
        [ValueKind::Namespace]
    );
    assert_eq!(
        of(&with_fields("spec.nodeName=n,metadata.name=p")),
        [ValueKind::Name]
    );
    assert_eq!(
        of(&in_namespace(with_fields("metadata.name=p"))),
        [ValueKind::Object]
    );
    assert_eq!(of(&labelled("!a")), []);
}

#[test]
fn a_view_is_indexed_under_its_least_used_value() {
    let mut placement = placement();
    let (a, b) = (labelled("a=x"), labelled("b=x"));
    let both = labelled("a=x,b=x");
    let set = labelled("a in (x,y),b=x");
    let [at_a, at_b] = [&a, &b].map(|selector| placement.position_for(selector));
    placement.add(&at_a, 1, Peer::UNKNOWN);
    assert_eq!(placement.position_for(&both), at_b);
    for _ in 0..2 {
        placement.add(&at_b, 1, Peer::UNKNOWN);
    }
    assert_eq!(placement.position_for(&both), at_a);
    // For a set, the value with the most views counts.
    assert_eq!(placement.position_for(&set).len(), 2);
    placement.add(&at_a, 1, Peer::UNKNOWN);
    assert_eq!(placement.position_for(&set), at_b);
    for _ in 0..2 {
        placement.remove(&at_a, 1, Peer::UNKNOWN);
        assert_eq!(placement.position_for(&both), at_a);
    }
    for _ in 0..2 {
        placement.remove(&at_b, 1, Peer::UNKNOWN);
    }
    assert!(
        placement.loads.is_empty(),
        "removed views leave nothing behind"
    );
}

#[test]
fn a_view_is_charged_for_terms_that_its_index_entry_does_not_answer() {
    let weighs = |selector: &Selector| weight(selector, &placement().position_for(selector));
    assert_eq!(weighs(&Selector::default()), 0);
    assert_eq!(weighs(&in_namespace(Selector::default())), 0);
    assert_eq!(weighs(&labelled("!a,!b")), EVERYWHERE_WEIGHT + 2);
    assert_eq!(weighs(&labelled("a,!b")), 2);
    assert_eq!(weighs(&in_namespace(labelled("!a,!b"))), 2);
    assert_eq!(weighs(&labelled("a=x,!b,!c")), 2);
}
