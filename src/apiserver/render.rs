//! Serializes values to JSON like Go's encoder does, with kube-apiserver's order of keys for objects of compiled-in kinds.

use bytes::Bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::protocol::status::go_json;
use crate::resource::Layout;

/// Order of the top-level keys of compiled-in kinds. Other keys follow, sorted.
const OBJECT_ORDER: &[&str] = &["kind", "apiVersion", "metadata"];

/// Order of the fields of Go's `ObjectMeta` (docs/PROTOCOL.md §5.5).
const METADATA_ORDER: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Compact JSON of a value, without a trailing newline.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Bytes {
    go_json(value).into()
}

/// Compact JSON of an object, with the order of keys of its resource's layout.
pub(super) fn object(layout: Layout, value: &Value) -> Bytes {
    match (layout, value) {
        (Layout::Typed, Value::Object(map)) => json(&OrderedMap {
            map,
            order: OBJECT_ORDER,
            nested: Nested::Metadata,
        }),
        _ => json(value),
    }
}

/// A map that is serialized with the keys in `order` first and the others sorted after them.
struct OrderedMap<'a> {
    map: &'a Map<String, Value>,
    order: &'static [&'static str],
    nested: Nested,
}

/// Whether the member `metadata` has its own order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nested {
    Metadata,
    Nothing,
}

impl Serialize for OrderedMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(self.map.len()))?;
        for key in self.order {
            match self.map.get(*key) {
                Some(Value::Object(map))
                    if *key == "metadata" && self.nested == Nested::Metadata =>
                {
                    let metadata = OrderedMap {
                        map,
                        order: METADATA_ORDER,
                        nested: Nested::Nothing,
                    };
                    out.serialize_entry(key, &metadata)?;
                }
                Some(value) => out.serialize_entry(key, value)?,
                None => {}
            }
        }
        for (key, value) in self.map {
            if !self.order.contains(&key.as_str()) {
                out.serialize_entry(key, value)?;
            }
        }
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(layout: Layout, value: &Value, expected: &str) {
        assert_eq!(object(layout, value), expected.as_bytes());
    }

    #[test]
    fn compiled_in_kinds_keep_the_order_of_their_go_structs() {
        check(
            Layout::Typed,
            &json!({"spec": {}, "apiVersion": "v1", "kind": "Pod", "metadata": {
                "uid": "u", "annotations": {}, "labels": {"b": "1", "a": "2"}, "namespace": "ns", "name": "p"}}),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"ns","uid":"u","labels":{"a":"2","b":"1"},"annotations":{}},"spec":{}}"#,
        );
    }

    #[test]
    fn custom_resources_have_sorted_keys() {
        check(
            Layout::Dynamic,
            &json!({"spec": 1, "kind": "W", "metadata": {"uid": "u", "name": "w"}}),
            r#"{"kind":"W","metadata":{"name":"w","uid":"u"},"spec":1}"#,
        );
    }

    #[test]
    fn text_is_escaped_as_go_does() {
        check(
            Layout::Dynamic,
            &json!("<a>&\u{2028}\u{2029}é\"\\\n\u{1}"),
            r#""\u003ca\u003e\u0026\u2028\u2029é\"\\\n\u0001""#,
        );
    }
}
