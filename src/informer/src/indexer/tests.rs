//! The store's rules, one test each. `model` compares random changes with a plain map, and tests readers that run beside a writer.

use bytes::Bytes;

use super::*;
use crate::resource::{Object, ObjectParts};
use crate::{Cached, Raw, cached_key};

mod model;

/// An object with a number, and the values under which it is indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    name: String,
    number: u32,
    values: Vec<String>,
}

fn item(name: &str, number: u32, values: &[&str]) -> Arc<Item> {
    Arc::new(Item {
        name: name.into(),
        number,
        values: values.iter().map(|value| (*value).into()).collect(),
    })
}

fn name_key() -> KeyFn<Item> {
    Arc::new(|item| match &*item.name {
        "" => Err(KeyError::new("no name")),
        "panic" => panic!("a key function that panics"),
        name => Ok(ObjectKey::new("", name)),
    })
}

fn own_values() -> IndexFn<Item> {
    index_by(|item: &Item| item.values.clone())
}

/// A store that holds these items, with the index `value`.
fn indexed(items: &[Arc<Item>]) -> Indexer<Item> {
    let indexer = Indexer::new(name_key());
    indexer.add_index("value", own_values()).unwrap();
    for item in items {
        indexer.put(Arc::clone(item)).unwrap();
    }
    indexer
}

fn numbers(indexer: &Indexer<Item>, value: &str) -> Vec<u32> {
    let found = indexer.by_index("value", value).unwrap();
    let mut numbers: Vec<_> = found.iter().map(|item| item.number).collect();
    numbers.sort_unstable();
    numbers
}

fn sorted<T: Ord>(found: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable();
    found
}

fn pod(namespace: &str, name: &str, labels: &[(&str, &str)], json: &str) -> Arc<Cached<Raw>> {
    let labels = labels.iter().map(|(k, v)| ((*k).into(), (*v).into()));
    let parts = ObjectParts {
        namespace: namespace.into(),
        name: name.into(),
        labels: labels.collect(),
        ..ObjectParts::default()
    };
    let object = Object::new(parts, json.as_bytes());
    Arc::new(Cached::new(&object, Raw::of(&object)))
}

#[test]
fn an_object_takes_the_place_of_the_one_with_its_key() {
    let indexer = indexed(&[]);
    let (old, new) = (item("a", 1, &[]), item("a", 2, &[]));
    assert_eq!(indexer.put(Arc::clone(&old)), Ok(None));
    assert!(Arc::ptr_eq(&indexer.put(new).unwrap().unwrap(), &old));
    assert_eq!(indexer.object("a").unwrap().number, 2);
    assert_eq!((indexer.len(), indexer.is_empty()), (1, false));
}

#[test]
fn an_object_taken_out_is_in_no_index() {
    let indexer = indexed(&[item("a", 1, &["x", "y"]), item("b", 2, &["x"])]);
    let key = ObjectKey::new("", "a");
    assert_eq!(indexer.remove(&key).unwrap().number, 1);
    assert_eq!(indexer.remove(&key), None);
    assert_eq!(indexer.object("a"), None);
    assert_eq!(numbers(&indexer, "x"), [2]);
    assert_eq!(indexer.index_values("value").unwrap(), ["x"]);
}

#[test]
fn an_object_is_under_each_of_its_values_once() {
    let indexer = indexed(&[item("a", 1, &["x", "y", "x"]), item("b", 2, &["y"])]);
    assert_eq!(numbers(&indexer, "x"), [1]);
    assert_eq!(numbers(&indexer, "y"), [1, 2]);
    let keys = indexer.index_keys("value", "y").unwrap();
    assert_eq!(
        sorted(keys),
        ["a", "b"].map(|name| ObjectKey::new("", name))
    );
    assert_eq!(sorted(indexer.index_values("value").unwrap()), ["x", "y"]);
}

#[test]
fn an_object_moves_between_values() {
    let moves: [(&[&str], &[&str]); 8] = [
        (&["x"], &["x"]),
        (&["x"], &["y"]),
        (&["x"], &[]),
        (&[], &["x"]),
        (&["x"], &["x", "y"]),
        (&["x", "y"], &["y"]),
        (&["x", "y"], &["y", "z"]),
        (&["x", "y"], &[]),
    ];
    for (before, after) in moves {
        let indexer = indexed(&[item("a", 1, before), item("stays", 9, &["y"])]);
        indexer.put(item("a", 2, after)).unwrap();
        for value in ["x", "y", "z"] {
            let moved = after.contains(&value).then_some(2);
            let stays = (value == "y").then_some(9);
            let expected: Vec<_> = moved.into_iter().chain(stays).collect();
            assert_eq!(numbers(&indexer, value), expected, "{before:?} {after:?}");
        }
        let expected = sorted(after.iter().chain(&["y"]).map(|value| (*value).to_owned()));
        let mut values = indexer.index_values("value").unwrap();
        values.sort_unstable();
        assert!(expected.iter().all(|value| values.contains(value)));
        assert!(values.iter().all(|value| expected.contains(value)));
    }
}

#[test]
fn values_that_no_object_has_are_forgotten() {
    let indexer = indexed(&[]);
    for number in 0..100 {
        let value = number.to_string();
        indexer.put(item("a", number, &[&value])).unwrap();
    }
    assert_eq!(indexer.index_values("value").unwrap(), ["99"]);
    assert_eq!(numbers(&indexer, "98"), [0; 0]);
}

#[test]
fn a_reused_slot_has_no_values_of_its_previous_object() {
    let indexer = indexed(&[item("a", 1, &["x", "y"])]);
    indexer.remove(&ObjectKey::new("", "a"));
    indexer.put(item("b", 2, &["z"])).unwrap();
    assert_eq!(numbers(&indexer, "x"), [0; 0]);
    assert_eq!(numbers(&indexer, "z"), [2]);
    indexer.put(item("a", 3, &["x"])).unwrap();
    assert_eq!(numbers(&indexer, "x"), [3]);
}

#[test]
fn a_value_of_many_objects_reads_as_one_of_few() {
    let indexer = indexed(&[]);
    for count in 1..=600_u32 {
        indexer
            .put(item(&count.to_string(), count, &["x"]))
            .unwrap();
        let found = indexer.index_keys("value", "x").unwrap();
        assert_eq!(found.len(), count as usize);
    }
    assert_eq!(numbers(&indexer, "x"), (1..=600).collect::<Vec<_>>());
    for count in (1..=600_u32).rev() {
        indexer.remove(&ObjectKey::new("", &count.to_string()));
        assert_eq!(numbers(&indexer, "x").len(), count as usize - 1);
    }
    assert!(indexer.index_values("value").unwrap().is_empty());
}

#[test]
fn an_unknown_index_is_an_error_and_an_unknown_value_is_empty() {
    let indexer = indexed(&[item("a", 1, &["x"])]);
    let unknown = IndexError::Unknown("node".into());
    assert_eq!(indexer.by_index("node", "x"), Err(unknown.clone()));
    assert_eq!(indexer.index_keys("node", "x"), Err(unknown.clone()));
    assert_eq!(indexer.index_values("node"), Err(unknown));
    assert_eq!(indexer.by_index("value", "nowhere"), Ok(Vec::new()));
    assert!(indexer.has_index("value") && !indexer.has_index("node"));
}

#[test]
fn an_index_added_later_covers_what_is_stored() {
    let indexer = Indexer::new(name_key());
    indexer.put(item("a", 1, &["x"])).unwrap();
    indexer.add_index("value", own_values()).unwrap();
    indexer.put(item("b", 2, &["x"])).unwrap();
    assert_eq!(numbers(&indexer, "x"), [1, 2]);
}

#[test]
fn an_index_name_is_given_once() {
    let indexer = indexed(&[item("a", 1, &["x"])]);
    let nothing = index_by(|_: &Item| None::<String>);
    let taken = indexer.add_index("value", nothing);
    assert_eq!(taken, Err(IndexError::Taken("value".into())));
    assert_eq!(numbers(&indexer, "x"), [1]);
}

#[test]
fn an_object_on_which_an_index_function_panics_is_stored_and_missing_there_alone() {
    let indexer = indexed(&[]);
    let odd = index_by(|item: &Item| {
        assert!(item.number.is_multiple_of(2), "an index function panics");
        ["even"]
    });
    indexer.put(item("late", 1, &["x"])).unwrap();
    indexer.add_index("even", odd).unwrap();
    assert_eq!(indexer.index_panics(), 1);
    let even = || indexer.by_index("even", "even").unwrap().len();
    for (number, panics, count) in [(2, 1, 1), (3, 2, 0), (5, 3, 0), (6, 3, 1)] {
        indexer.put(item("a", number, &["x"])).unwrap();
        assert_eq!(indexer.object("a").unwrap().number, number);
        assert_eq!(numbers(&indexer, "x"), [1, number]);
        assert_eq!((indexer.index_panics(), even()), (panics, count));
    }
    assert!(indexer.replace(vec![item("a", 7, &[])]).is_empty());
    assert_eq!((indexer.index_panics(), even()), (4, 0));
}

#[test]
fn an_object_without_a_key_is_refused_and_the_others_stay() {
    let indexer = indexed(&[item("a", 1, &["x"])]);
    for name in ["", "panic"] {
        assert!(indexer.put(item(name, 2, &["x"])).is_err());
    }
    assert_eq!(numbers(&indexer, "x"), [1]);
    let keyless = indexer.replace(vec![item("", 3, &[]), item("b", 3, &["x"])]);
    assert_eq!(
        (keyless.count, keyless.first),
        (1, Some(KeyError::new("no name")))
    );
    assert_eq!(numbers(&indexer, "x"), [3]);
}

#[test]
fn a_replacement_leaves_nothing_of_what_was_there() {
    let indexer = indexed(&[item("a", 1, &["x"]), item("b", 1, &["y"])]);
    let last = indexer.replace(vec![item("b", 2, &["z"]), item("b", 3, &["x"])]);
    assert!(last.is_empty());
    assert_eq!(indexer.keys(), [ObjectKey::new("", "b")]);
    assert_eq!(numbers(&indexer, "x"), [3]);
    assert_eq!(indexer.index_values("value").unwrap(), ["x"]);
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let indexer = indexed(&[item("a", 1, &["x"]), item("b", 2, &["x"])]);
    let snapshot = indexer.snapshot();
    indexer.put(item("a", 3, &["x"])).unwrap();
    indexer.put(item("c", 4, &["x"])).unwrap();
    indexer.remove(&ObjectKey::new("", "b"));
    let copy = snapshot.clone();
    drop(snapshot);
    assert_eq!((copy.len(), copy.is_empty()), (2, false));
    assert_eq!(sorted(copy.iter().map(|item| item.number)), [1, 2]);
    let now = indexer.snapshot();
    assert_eq!(sorted(now.iter().map(|item| item.number)), [3, 4]);
}

#[test]
fn an_index_function_may_read_the_store() {
    let indexer = Arc::new(Indexer::new(name_key()));
    let store = Arc::clone(&indexer);
    let count = index_by(move |_: &Item| [store.len().to_string()]);
    indexer.add_index("value", count).unwrap();
    indexer.put(item("a", 1, &[])).unwrap();
    indexer.put(item("b", 2, &[])).unwrap();
    assert_eq!(numbers(&indexer, "1"), [2]);
}

#[test]
fn a_store_keeps_no_key_but_the_newest_objects_own() {
    let indexer = Indexer::new(cached_key());
    indexer.put(pod("ns", "p", &[], "{}")).unwrap();
    let newest = pod("ns", "p", &[], "{}");
    indexer.put(Arc::clone(&newest)).unwrap();
    let keys = indexer.keys();
    assert!(std::ptr::eq(keys[0].as_str(), newest.key().as_str()));
}

#[test]
fn an_object_without_a_name_has_no_key() {
    let indexer = Indexer::new(cached_key());
    assert!(indexer.put(pod("ns", "", &[], "{}")).is_err());
    assert!(indexer.put(pod("", "cluster-scoped", &[], "{}")).is_ok());
}

#[test]
fn ready_made_indices_find_by_namespace_label_and_field() {
    let indexer = Indexer::new(cached_key());
    indexer
        .add_index(NAMESPACE_INDEX, index_by_namespace())
        .unwrap();
    indexer.add_index("app", index_by_label("app")).unwrap();
    let node = index_by_pointer("/spec/nodeName").unwrap();
    indexer.add_index("node", node).unwrap();
    let json = r#"{"spec":{"nodeName":"n1"}}"#;
    indexer.put(pod("a", "p", &[("app", "web")], json)).unwrap();
    indexer.put(pod("b", "q", &[("b", "web")], "{}")).unwrap();
    indexer.put(pod("", "r", &[], json)).unwrap();
    for (index, value, expected) in [
        (NAMESPACE_INDEX, "a", &["a/p"][..]),
        (NAMESPACE_INDEX, "", &["r"]),
        ("app", "web", &["a/p"]),
        ("node", "n1", &["a/p", "r"]),
        ("node", "", &[]),
    ] {
        let found = indexer.by_index(index, value).unwrap();
        let keys = sorted(found.iter().map(|object| object.key().as_str()));
        assert_eq!(keys, expected, "{index} {value}");
    }
}

#[test]
fn pointers_find_texts_numbers_and_booleans() {
    let json = r#"{"a":{"b/c":["x",{"~":7}],"d":null,"e":true,"f":{}},"g":"\u0041","h":-1.5}"#;
    for (pointer, expected) in [
        ("/g", Some("A")),
        ("/h", Some("-1.5")),
        ("/a/b~1c/0", Some("x")),
        ("/a/b~1c/1/~0", Some("7")),
        ("/a/e", Some("true")),
        ("/a/d", None),
        ("/a/f", None),
        ("/a/b~1c", None),
        ("/a/b~1c/2", None),
        ("/a/b~1c/-", None),
        ("/g/x", None),
        ("/nowhere/at/all", None),
        ("", None),
    ] {
        let indexer = Indexer::new(cached_key());
        let function = index_by_pointer(pointer).unwrap();
        indexer.add_index("found", function).unwrap();
        indexer.put(pod("", "p", &[], json)).unwrap();
        let values = indexer.index_values("found").unwrap();
        assert_eq!(values.first().map(|value| &**value), expected, "{pointer}");
    }
}

#[test]
fn malformed_pointers_are_refused() {
    for pointer in ["spec", "spec/nodeName", "/a~", "/a~2b"] {
        assert!(index_by_pointer(pointer).is_err(), "{pointer}");
    }
}

#[test]
fn an_object_whose_json_is_broken_is_stored_without_a_value() {
    let indexer = Indexer::new(cached_key());
    let function = index_by_pointer("/spec/nodeName").unwrap();
    indexer.add_index("node", function).unwrap();
    for json in [r#"{"spec":{"nodeName":"n1"}"#, r#"{"spec":[}"#, ""] {
        indexer.put(pod("", "p", &[], json)).unwrap();
        assert_eq!(indexer.object("p").unwrap().bytes(), Bytes::from(json));
        assert!(indexer.index_values("node").unwrap().is_empty(), "{json}");
    }
}
