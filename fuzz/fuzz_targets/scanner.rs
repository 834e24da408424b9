//! The scanner never panics and never returns spans outside the bytes; for valid JSON it finds what a JSON tree has.
#![no_main]

mod tree;

use kube_fanout::decode::{scan_bookmark, scan_object, scan_status};
use kube_fanout::resource::{FieldTable, Gvr, Layout, Object, ResourceVersion};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tree::{plain_tree, scalar};

fuzz_target!(|bytes: &[u8]| {
    let pods = FieldTable::of(&Gvr::new("", "v1", "pods"));
    let status = scan_status(bytes);
    assert!(status.message.len() <= bytes.len().max(256) * 3);
    let tree = plain_tree(bytes);
    if let Ok(bookmark) = scan_bookmark(bytes) {
        let digits = std::str::from_utf8(bookmark.version_span.of(bytes)).expect("digits");
        assert_eq!(digits.parse(), Ok(bookmark.resource_version));
        if let Some(tree) = &tree {
            let end = tree.pointer("/metadata/annotations/k8s.io~1initial-events-end");
            let end = end.and_then(scalar).is_some_and(|end| end == "true");
            assert_eq!(bookmark.initial_events_end, end);
        }
    }
    let Ok(parts) = scan_object(bytes, pods) else {
        return;
    };
    let digits = std::str::from_utf8(parts.version_span.of(bytes)).expect("digits");
    assert_eq!(digits.parse(), Ok(parts.resource_version));
    assert!((parts.type_prefix_len as usize) < bytes.len());
    assert_eq!(parts.fields.len(), pods.fields().len());
    // The scanner may accept invalid JSON within brackets; valid JSON it must read as the tree does.
    if let Some(tree) = tree {
        let text = |path: &str| {
            tree.pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        assert_eq!(parts.name, text("/metadata/name"));
        assert_eq!(parts.uid, text("/metadata/uid"));
        assert_eq!(parts.namespace, text("/metadata/namespace"));
        let labels = tree["metadata"]["labels"].as_object();
        assert_eq!(parts.labels.len(), labels.map_or(0, serde_json::Map::len));
        for (key, value) in &parts.labels {
            let known = tree["metadata"]["labels"][&**key].as_str();
            assert_eq!(known.unwrap_or_default(), value);
        }
        for (field, found) in pods.fields().iter().zip(&parts.fields) {
            let value = field.path.iter().fold(&tree, |value, key| &value[*key]);
            if field.path.is_empty() || value.is_null() || value.is_object() || value.is_array() {
                assert_eq!(&**found, field.default);
            } else if !value.is_number() {
                assert_eq!(Some(&**found), scalar(value).as_deref());
            }
        }
        check_versions(&Object::new(parts, bytes), &tree);
    }
});

/// Writing another version into an object changes only its version, wherever it is in the object.
fn check_versions(object: &Object, tree: &Value) {
    for version in [1, u64::MAX] {
        let line = object.deleted_frame(ResourceVersion(version));
        let event = serde_json::from_slice::<Value>(&line).expect("a valid line");
        assert_eq!(event["type"], "DELETED");
        let mut expected = tree.clone();
        expected["metadata"]["resourceVersion"] = version.to_string().into();
        assert_eq!(event["object"], expected);
    }
    let whole = tree.as_object().expect("an object");
    for layout in [Layout::Typed, Layout::Dynamic] {
        let item = [b"{", &object.list_item(layout)[..]].concat();
        let item = serde_json::from_slice::<Value>(&item).expect("a valid item");
        for (key, value) in whole {
            let may_go = layout == Layout::Typed && matches!(&**key, "kind" | "apiVersion");
            let is_cut = may_go && item.get(key).is_none();
            assert!(is_cut || item.get(key) == Some(value), "{key}");
        }
    }
}
