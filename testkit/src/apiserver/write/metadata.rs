//! Checks of an object's metadata: the types of Go's `ObjectMeta`, and the values that Kubernetes accepts.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::apiserver::kinds::ServedKind;
use crate::apiserver::names::{is_label_key, is_label_value};
use crate::apiserver::status::Status;

/// Metadata that is not stored if it is empty.
const OPTIONAL: [&str; 5] = [
    "generateName",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

/// Checks the types of the metadata, and drops its nulls, which Go reads as absent.
///
/// # Errors
/// 400 that names the first field of another type. The text is not Go's.
pub(super) fn check_types(kind: &ServedKind, object: &mut Value) -> Result<(), Status> {
    let refuse = |field: &str| {
        let ServedKind { kind, version, .. } = kind;
        Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {field} is of the wrong type"
        ))
    };
    match object.get_mut("metadata") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(metadata)) => {
            metadata.retain(|_, value| !value.is_null());
            let wrong = metadata.iter().find(|(field, value)| !fits(field, value));
            wrong.map_or(Ok(()), |(field, _)| {
                Err(refuse(&format!("metadata.{field}")))
            })
        }
        Some(_) => Err(refuse("metadata")),
    }
}

/// Whether a value has the type of the field in Go's `ObjectMeta`.
fn fits(field: &str, value: &Value) -> bool {
    let mut items = value.as_array().into_iter().flatten();
    match field {
        "name" | "generateName" | "namespace" | "uid" | "resourceVersion" => value.is_string(),
        "generation" | "deletionGracePeriodSeconds" => value.is_i64(),
        "creationTimestamp" | "deletionTimestamp" => {
            let time = value.as_str().map(str::parse::<jiff::Timestamp>);
            time.is_some_and(|time| time.is_ok())
        }
        "labels" | "annotations" => {
            let map = value.as_object();
            map.is_some_and(|map| map.values().all(Value::is_string))
        }
        "finalizers" => value.is_array() && items.all(Value::is_string),
        "managedFields" => value.is_array() && items.all(Value::is_object),
        "ownerReferences" => value.is_array() && items.all(is_owner),
        _ => true,
    }
}

fn is_owner(owner: &Value) -> bool {
    let Some(owner) = owner.as_object() else {
        return false;
    };
    owner.iter().all(|(field, value)| match field.as_str() {
        "controller" | "blockOwnerDeletion" => value.is_boolean(),
        "uid" | "apiVersion" | "kind" | "name" => value.is_string(),
        _ => true,
    })
}

/// Removes what is never stored, and optional fields that are empty.
pub(super) fn drop_unstored(metadata: &mut Map<String, Value>) {
    metadata.retain(|field, value| {
        let is_empty = match value {
            Value::Null => true,
            Value::Object(map) => map.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::String(text) => text.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        let is_dropped = matches!(field.as_str(), "managedFields" | "selfLink") || value.is_null();
        !(is_dropped || is_empty && OPTIONAL.contains(&field.as_str()))
    });
}

/// An object's finalizers.
pub(super) fn finalizers(object: &Value) -> &[Value] {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.map_or(&[], Vec::as_slice)
}

/// Checks labels, owners and finalizers.
///
/// # Errors
/// 422 that names the field.
pub(super) fn check(metadata: &Map<String, Value>) -> Result<(), Status> {
    let labels = metadata.get("labels").and_then(Value::as_object);
    let mut labels = labels.into_iter().flatten();
    let items = |field: &str| {
        let items = metadata.get(field).and_then(Value::as_array);
        items.map_or(&[][..], Vec::as_slice)
    };
    let is_key = |text: &Value| text.as_str().is_some_and(is_label_key);
    let field = if !labels
        .all(|(key, value)| is_label_key(key) && value.as_str().is_some_and(is_label_value))
    {
        "labels"
    } else if !items("ownerReferences").iter().all(is_complete) {
        "ownerReferences"
    } else if !items("finalizers").iter().all(is_key) {
        "finalizers"
    } else {
        return Ok(());
    };
    Err(Status::invalid(format!("metadata.{field} is invalid")))
}

fn is_complete(owner: &Value) -> bool {
    let fields = ["apiVersion", "kind", "name", "uid"];
    fields
        .iter()
        .all(|field| owner[*field].as_str().is_some_and(|text| !text.is_empty()))
}

/// Whether finalizers were added.
pub(super) fn adds_finalizers(old: &Value, new: &Value) -> bool {
    let known: HashSet<&Value> = finalizers(old).iter().collect();
    finalizers(new).iter().any(|name| !known.contains(name))
}
