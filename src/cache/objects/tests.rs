//! The map against a plain one, its clones, its places.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::resource::{ObjectParts, ResourceVersion};

fn object(namespace: &str, name: &str, version: u64) -> Arc<Object> {
    let parts = ObjectParts {
        namespace: namespace.into(),
        name: name.into(),
        resource_version: ResourceVersion(version),
        ..ObjectParts::default()
    };
    Arc::new(Object::new(parts, b"{}"))
}

fn contents(map: &ObjectMap) -> Vec<(String, u64)> {
    map.iter()
        .map(|object| (object.key().to_string(), object.resource_version().0))
        .collect()
}

#[test]
fn a_bulk_load_is_sorted_and_keeps_the_last_of_equals() {
    let map = ObjectMap::from_objects(vec![
        object("b", "x", 1),
        object("a", "x", 2),
        object("b", "x", 3),
    ]);
    assert_eq!(
        contents(&map),
        [("a/x".to_owned(), 2), ("b/x".to_owned(), 3)]
    );
    assert_eq!(map.len(), 2);
}

#[test]
fn a_clone_keeps_its_state_while_the_original_changes() {
    let mut map = ObjectMap::from_objects(
        (0..1000)
            .map(|i| object("ns", &format!("n{i:04}"), i))
            .collect(),
    );
    let before = map.clone();
    map.insert(object("ns", "n0500", 9999));
    map.remove("ns/n0001");
    assert_eq!(
        before.object("ns/n0500").map(|o| o.resource_version().0),
        Some(500)
    );
    assert!(before.object("ns/n0001").is_some() && map.object("ns/n0001").is_none());
    assert_eq!((before.len(), map.len()), (1000, 999));
}

#[test]
fn a_place_from_a_key_starts_at_the_first_key_not_below() {
    let map = ObjectMap::from_objects(
        (0..600)
            .map(|i| object("ns", &format!("n{i:04}"), i))
            .collect(),
    );
    for (from, first) in [
        ("", "ns/n0000"),
        ("ns/n0191", "ns/n0191"),
        ("ns/n0191\0", "ns/n0192"),
        ("ns/n0599", "ns/n0599"),
    ] {
        let mut place = map.place_from(from);
        assert_eq!(
            map.next(&mut place).map(|o| o.key().to_string()),
            Some(first.to_owned()),
            "{from:?}"
        );
    }
    let mut place = map.place_from("zz");
    assert!(map.next(&mut place).is_none());
    assert_eq!(map.count_prefixed(map.place_from("ns/n0590"), "ns/"), 10);
}

proptest! {
    /// Against a plain map, with enough keys that chunks split, shrink and join.
    #[test]
    fn it_holds_what_a_plain_map_holds(steps in prop::collection::vec((any::<bool>(), 0_u32..700), 1..3000)) {
        let mut map = ObjectMap::default();
        let mut model = BTreeMap::new();
        for (version, (insert, name)) in steps.into_iter().enumerate() {
            let key = format!("ns/n{name:03}");
            if insert {
                let before = map.insert(object("ns", &format!("n{name:03}"), version as u64));
                prop_assert_eq!(before.map(|o| o.resource_version().0), model.insert(key, version as u64));
            } else {
                prop_assert_eq!(map.remove(&key).map(|o| o.resource_version().0), model.remove(&key));
            }
            prop_assert_eq!(map.len(), model.len());
        }
        prop_assert_eq!(contents(&map), model.into_iter().collect::<Vec<_>>());
        let mut place = Place::default();
        prop_assert_eq!(std::iter::from_fn(|| map.next(&mut place)).count(), map.len());
    }
}
