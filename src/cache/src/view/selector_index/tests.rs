//! Adding and removing views. The tests of the view table check which views an event concerns.

use smallvec::smallvec;

use super::*;
use crate::selector::samples::object;

#[test]
fn removing_a_view_searches_only_its_index_entries() {
    let mut index = SelectorIndex::new(Hasher::default());
    let names: IndexPosition = smallvec![(ValueKind::Name, 1), (ValueKind::Name, 2)];
    let field: IndexPosition = smallvec![(ValueKind::Field(1), 3)];
    let everything = IndexPosition::new();
    for (number, position) in [(1, &names), (2, &names), (3, &field), (4, &everything)] {
        index.insert(number, position);
    }
    index.insert(5, &smallvec![(ValueKind::Name, 2)]);
    let counts = |index: &mut SelectorIndex| {
        [
            ValueKind::Name,
            ValueKind::Field(0),
            ValueKind::Field(1),
            ValueKind::Label,
        ]
        .map(|kind| *index.counts.of(kind))
    };
    assert_eq!(counts(&mut index), [5, 0, 1, 0]);
    assert_eq!(index.remove(1, &names), 2 + 3);
    assert_eq!(index.remove(4, &everything), 1);
    assert_eq!(index.remove(3, &field), 1);
    assert_eq!(counts(&mut index), [3, 0, 0, 0]);
    assert_eq!(index.remove(5, &smallvec![(ValueKind::Name, 2)]), 2);
    assert_eq!(index.remove(2, &names), 2);
    assert_eq!(counts(&mut index), [0; 4]);
    assert!(index.is_empty());
}

#[test]
fn lost_labels_are_removed_or_changed_ones() {
    let before = object(&[("a", "1"), ("b", "2"), ("c", "3"), ("e", "5")]);
    let after = object(&[("a", "1"), ("aa", "0"), ("b", "9"), ("d", "4"), ("e", "5")]);
    let lost: Vec<_> = lost_labels(&before, &after).collect();
    assert_eq!(lost, [("b", "2"), ("c", "3")]);
    let gained: Vec<_> = lost_labels(&after, &before).collect();
    assert_eq!(gained, [("aa", "0"), ("b", "9"), ("d", "4")]);
}
