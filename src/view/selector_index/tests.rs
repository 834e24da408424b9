//! What views that come and go leave of the index. Which views an event concerns is tested where views are.

use smallvec::smallvec;

use super::*;
use crate::view::selector::tests::object;

#[test]
fn a_view_that_goes_leaves_nothing_and_is_looked_for_where_it_stands() {
    let mut interest = SelectorIndex::new(Hasher::default());
    let names: IndexPosition = smallvec![(ValueKind::Name, 1), (ValueKind::Name, 2)];
    let field: IndexPosition = smallvec![(ValueKind::Field(1), 3)];
    let everything = IndexPosition::new();
    for (number, place) in [(1, &names), (2, &names), (3, &field), (4, &everything)] {
        interest.insert(number, place);
    }
    interest.insert(5, &smallvec![(ValueKind::Name, 2)]);
    let counts = |interest: &mut SelectorIndex| {
        [
            ValueKind::Name,
            ValueKind::Field(0),
            ValueKind::Field(1),
            ValueKind::Label,
        ]
        .map(|kind| *interest.counts.of(kind))
    };
    assert_eq!(counts(&mut interest), [5, 0, 1, 0]);
    assert_eq!(interest.remove(1, &names), 2 + 3);
    assert_eq!(interest.remove(4, &everything), 1);
    assert_eq!(interest.remove(3, &field), 1);
    assert_eq!(counts(&mut interest), [3, 0, 0, 0]);
    assert_eq!(interest.remove(5, &smallvec![(ValueKind::Name, 2)]), 2);
    assert_eq!(interest.remove(2, &names), 2);
    assert_eq!(counts(&mut interest), [0; 4]);
    assert!(interest.is_empty());
}

#[test]
fn lost_labels_are_those_that_went_or_changed() {
    let before = object(&[("a", "1"), ("b", "2"), ("c", "3"), ("e", "5")]);
    let after = object(&[("a", "1"), ("aa", "0"), ("b", "9"), ("d", "4"), ("e", "5")]);
    let lost: Vec<_> = lost_labels(&before, &after).collect();
    assert_eq!(lost, [("b", "2"), ("c", "3")]);
    let came: Vec<_> = lost_labels(&after, &before).collect();
    assert_eq!(came, [("aa", "0"), ("b", "9"), ("d", "4")]);
}
