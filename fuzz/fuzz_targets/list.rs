//! Reading list pages never panics, and valid JSON gives the items that a JSON tree gives.
#![no_main]

mod tree;

use kube_fanout::decode::{ItemFraming, scan_list, scan_object, watch_form};
use kube_fanout::resource::{Encoding, FieldTable, Gvr, Layout};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tree::plain_tree;

fuzz_target!(|bytes: &[u8]| {
    let Ok(page) = scan_list(bytes) else {
        return;
    };
    let mut end = 0;
    for item in &page.items {
        assert!(item.start >= end, "items stand one after the other");
        end = item.end;
    }
    let tree = plain_tree(bytes);
    if let Some(tree) = &tree {
        let text = |path| {
            tree.pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        assert_eq!(page.kind, text("/kind"));
        assert_eq!(page.api_version, text("/apiVersion"));
        assert_eq!(page.continue_token, text("/metadata/continue"));
        assert_eq!(
            text("/metadata/resourceVersion").parse(),
            Ok(page.resource_version)
        );
        let none = Vec::new();
        let items = tree["items"].as_array().unwrap_or(&none);
        assert_eq!(items.len(), page.items.len());
        for (item, span) in items.iter().zip(&page.items) {
            let found = serde_json::from_slice::<Value>(span.of(bytes));
            assert_eq!(found.as_ref().ok(), Some(item));
        }
    }
    let fields = FieldTable::of(&Gvr::new("", "v1", "pods"));
    let items = ItemFraming::new(&page, Encoding::Json);
    let kind = page.kind.strip_suffix("List").unwrap_or(&page.kind);
    for item in &page.items {
        let item = item.of(bytes);
        let form = watch_form(item, kind, &page.api_version, page.layout);
        match (items.object(item, fields), scan_object(&form, fields)) {
            (Ok(object), Ok(_)) => assert_eq!(object.bytes(), form),
            (object, parts) => assert_eq!(object.is_ok(), parts.is_ok()),
        }
        for layout in [Layout::Typed, Layout::Dynamic] {
            check_form(
                item,
                &watch_form(item, "Pod", "v1", layout),
                fields,
                tree.is_some(),
            );
        }
    }
});

/// The stored form of an item is one line with the item's contents.
fn check_form(item: &[u8], form: &[u8], fields: FieldTable, is_valid: bool) {
    assert_eq!(form.first(), Some(&b'{'));
    assert!(!form.contains(&b'\n'));
    if !is_valid {
        return;
    }
    let (of_form, of_item) = (scan_object(form, fields), scan_object(item, fields));
    match (of_form, of_item) {
        (Ok(form), Ok(item)) => {
            assert_eq!(form.name, item.name);
            assert_eq!(form.namespace, item.namespace);
            assert_eq!(form.resource_version, item.resource_version);
            assert_eq!(form.labels, item.labels);
            assert_eq!(form.fields, item.fields);
        }
        (Err(_), Err(_)) => {}
        // The scanner rejects newlines, and removing them is what the stored form is for.
        (Ok(_), Err(_)) if item.contains(&b'\n') => {}
        (form, item) => panic!("{form:?} of {item:?}"),
    }
    let form = serde_json::from_slice::<Value>(form).expect("a valid item");
    let item = serde_json::from_slice::<Value>(item).expect("a valid item");
    let (Some(form), Some(item)) = (form.as_object(), item.as_object()) else {
        panic!("items are objects");
    };
    assert!(item.iter().all(|(key, value)| form.get(key) == Some(value)));
}
