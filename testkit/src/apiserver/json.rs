//! JSON as kube-apiserver writes it: Go's escapes, and for built-in kinds the order of the Go structs' fields.

use bytes::Bytes;
use memchr::{memchr, memchr3};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Value};

use super::kinds::ServedKind;

const OBJECT: &[&str] = &["kind", "apiVersion", "metadata"];
const METADATA: &[&str] = &[
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
const OWNER: &[&str] = &[
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
];

/// Compact JSON.
pub(super) fn compact<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    escaped(serde_json::to_string(value).unwrap_or_default())
}

/// JSON that is indented by two spaces, as clients get errors that accept nothing but conversions.
pub(super) fn indented<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    escaped(serde_json::to_string_pretty(value).unwrap_or_default())
}

/// Go escapes these characters. Outside of texts JSON does not have them.
fn escaped(json: String) -> Vec<u8> {
    const ESCAPES: [(char, &str); 5] = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    // The last is the first byte of both line separators.
    let bytes = json.as_bytes();
    if memchr3(b'<', b'>', b'&', bytes).is_none() && memchr(0xe2, bytes).is_none() {
        return json.into_bytes();
    }
    let replace = |text: String, (character, escape)| text.replace::<char>(character, escape);
    ESCAPES.into_iter().fold(json, replace).into_bytes()
}

/// An object with its kind's order of fields.
pub(super) fn object(kind: &ServedKind, value: &Value) -> Vec<u8> {
    match value.as_object() {
        Some(map) if !kind.is_custom => compact(&Ordered { map, first: OBJECT }),
        _ => compact(value),
    }
}

/// An object's metadata as a `PartialObjectMetadata` of this version of `meta.k8s.io`.
pub(super) fn partial(object: &[u8], version: &str) -> Bytes {
    let object: Value = serde_json::from_slice(object).unwrap_or_default();
    let empty = Map::new();
    let map = object["metadata"].as_object().unwrap_or(&empty);
    let metadata = compact(&Ordered {
        map,
        first: METADATA,
    });
    let head = format!(
        r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/{version}","metadata":"#
    );
    [head.as_bytes(), &metadata, b"}"].concat().into()
}

/// A map whose fields in `first` precede the others.
struct Ordered<'a> {
    map: &'a Map<String, Value>,
    first: &'static [&'static str],
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(self.map.len()))?;
        for key in self.first {
            match (*key, self.map.get(*key)) {
                ("metadata", Some(Value::Object(map))) => {
                    let first = METADATA;
                    out.serialize_entry(key, &Self { map, first })?;
                }
                ("ownerReferences", Some(Value::Array(owners))) => {
                    out.serialize_entry(key, &Owners(owners))?;
                }
                (_, Some(value)) => out.serialize_entry(key, value)?,
                (_, None) => {}
            }
        }
        for (key, value) in self.map {
            if !self.first.contains(&key.as_str()) {
                out.serialize_entry(key, value)?;
            }
        }
        out.end()
    }
}

struct Owners<'a>(&'a [Value]);

impl Serialize for Owners<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_seq(Some(self.0.len()))?;
        for owner in self.0 {
            match owner.as_object() {
                Some(map) => out.serialize_element(&Ordered { map, first: OWNER })?,
                None => out.serialize_element(owner)?,
            }
        }
        out.end()
    }
}

/// A text in an object's metadata; empty if absent.
pub(super) fn metadata_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// An object's metadata, which is added if it is missing.
pub(super) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    member_mut(as_map(object), "metadata")
}

fn member_mut<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    as_map(map.entry(key).or_insert(Value::Null))
}

#[expect(clippy::expect_used, reason = "the lines before make it an object")]
fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value
        .as_object_mut()
        .expect("invariant: it was made an object")
}
