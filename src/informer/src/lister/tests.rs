//! Listers select objects by label, namespace and name.

use super::*;
use crate::resource::{Object, ObjectParts};
use crate::{cached_key, index_by_namespace};

fn stored(objects: &[(&str, &str, &str)]) -> Arc<Indexer<Cached<()>>> {
    let indexer = Indexer::new(cached_key());
    for (namespace, name, app) in objects {
        let parts = ObjectParts {
            namespace: (*namespace).into(),
            name: (*name).into(),
            labels: vec![("app".into(), (*app).into())],
            ..ObjectParts::default()
        };
        let object = Cached::new(&Object::new(parts, b"{}"), ());
        indexer.put(Arc::new(object)).unwrap();
    }
    Arc::new(indexer)
}

fn keys(mut found: Vec<Arc<Cached<()>>>) -> Vec<String> {
    found.sort_by(|a, b| a.key().cmp(b.key()));
    found
        .iter()
        .map(|object| object.key().to_string())
        .collect()
}

const OBJECTS: [(&str, &str, &str); 4] = [
    ("a", "x", "web"),
    ("a", "y", "db"),
    ("b", "x", "web"),
    ("", "n", "web"),
];

#[test]
fn a_lister_lists_what_a_selector_matches() {
    let lister = Lister::new(stored(&OBJECTS));
    for (selector, expected) in [
        ("", &["a/x", "a/y", "b/x", "n"][..]),
        ("app=web", &["a/x", "b/x", "n"]),
        ("app in (db,cache)", &["a/y"]),
        ("app!=web,tier", &[]),
    ] {
        let selector = LabelSelector::parse(selector).unwrap();
        assert_eq!(keys(lister.list(&selector)), expected, "{selector}");
    }
}

#[test]
fn a_lister_lists_one_namespace_with_and_without_an_index() {
    let indexer = stored(&OBJECTS);
    let lister = Lister::new(Arc::clone(&indexer));
    for round in ["without", "with"] {
        for (namespace, selector, expected) in [
            ("a", "", &["a/x", "a/y"][..]),
            ("a", "app=web", &["a/x"]),
            ("b", "app=db", &[]),
            ("nowhere", "", &[]),
        ] {
            let selector = LabelSelector::parse(selector).unwrap();
            let found = lister.list_in(namespace, &selector);
            assert_eq!(keys(found), expected, "{namespace} {selector} {round}");
        }
        if round == "without" {
            indexer
                .add_index(NAMESPACE_INDEX, index_by_namespace())
                .unwrap();
        }
    }
}

#[test]
fn the_empty_namespace_lists_all() {
    let indexer = stored(&OBJECTS);
    indexer
        .add_index(NAMESPACE_INDEX, index_by_namespace())
        .unwrap();
    let all = Lister::new(indexer).list_in("", &LabelSelector::default());
    assert_eq!(keys(all), ["a/x", "a/y", "b/x", "n"]);
}

#[test]
fn a_lister_finds_one_object_by_namespace_and_name() {
    let indexer = stored(&OBJECTS);
    let lister = Lister::new(Arc::clone(&indexer)).clone();
    let found = lister.object("a", "x").unwrap();
    assert!(Arc::ptr_eq(&found, &indexer.object("a/x").unwrap()));
    assert_eq!(lister.object("", "n").unwrap().key().as_str(), "n");
    assert_eq!(lister.object("", "x"), None);
    assert_eq!(lister.object("b", "y"), None);
}
