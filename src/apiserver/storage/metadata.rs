//! Accessors for the members of an object's metadata.

use serde_json::{Map, Value};

use super::super::body::text;
use crate::resource::ResourceVersion;

/// Sets an object's resource version.
pub(super) fn set_version(object: &mut Value, version: ResourceVersion) {
    metadata_mut(object).insert("resourceVersion".to_owned(), version.to_string().into());
}

/// A string in an object's metadata; `""` if absent.
pub(super) fn metadata_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(Value::as_object)
        .map_or("", |metadata| text(metadata, field))
}

/// An object's finalizers; empty if absent.
pub(super) fn finalizers(object: &Value) -> &[Value] {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// An object's metadata; added if it is missing.
#[expect(clippy::expect_used, reason = "the lines before make it an object")]
pub(super) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata
        .as_object_mut()
        .expect("invariant: the metadata was made an object above")
}

/// Sets a member of an object, or removes it if there is no value.
pub(super) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    match (object.as_object_mut(), value) {
        (Some(map), Some(value)) => drop(map.insert(field.to_owned(), value)),
        (Some(map), None) => drop(map.remove(field)),
        (None, _) => {}
    }
}

pub(super) fn remove(object: &mut Value, field: &str) {
    set(object, field, None);
}
