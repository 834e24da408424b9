//! The three kinds of patch: decoding them, and applying them within bounds.

mod strategic;

use json_patch::{PatchOperation, jsonptr::PointerBuf};
use serde_json::Value;

use super::kinds::ServedKind;
use super::status::{Details, Status};

/// kube-apiserver's limit of a JSON patch.
const OPERATIONS_MAX: usize = 10_000;
/// How much a JSON patch may copy; otherwise each `copy` could double the object.
const COPIED_MAX: usize = 3 << 20;
/// How deep a JSON patch may nest an object; serde_json reads no deeper than 127 levels.
const DEPTH_MAX: usize = 120;
const REJECTED: &str = "the server rejected our request due to an error in our request";

/// A patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// A JSON merge patch (RFC 7386).
    Merge(Value),
    /// A JSON patch (RFC 6902).
    Json(json_patch::Patch),
    /// A strategic merge patch, for built-in kinds.
    Strategic(Value),
}

impl Patch {
    /// Decodes a body by its content type.
    ///
    /// # Errors
    /// 415 for another content type, 400 for a body that is no such patch, 413 for too many operations.
    pub(super) fn decode(
        kind: &ServedKind,
        content_type: &str,
        body: &[u8],
    ) -> Result<Self, Status> {
        let bad = |fault: serde_json::Error| {
            Status::bad_request(format!("error decoding patch: {fault}"))
        };
        match content_type {
            "application/merge-patch+json" => object(body).map(Self::Merge),
            "application/strategic-merge-patch+json" if !kind.is_custom => {
                object(body).map(Self::Strategic)
            }
            "application/json-patch+json" => {
                let patch: json_patch::Patch = serde_json::from_slice(body).map_err(bad)?;
                let count = patch.0.len();
                if count > OPERATIONS_MAX {
                    return Err(Status::new(
                        413,
                        "RequestEntityTooLarge",
                        format!(
                            "Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"
                        ),
                    ));
                }
                Ok(Self::Json(patch))
            }
            _ if kind.is_custom => Err(Status::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json",
            )),
            _ => Err(
                Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
                    .with(Details::default()),
            ),
        }
    }

    /// The patched object.
    ///
    /// # Errors
    /// 422 for a patch that does not fit the object or does too much, 500 for an unknown directive.
    pub(super) fn apply(&self, mut object: Value) -> Result<Value, Status> {
        match self {
            Self::Merge(patch) => json_patch::merge(&mut object, patch),
            Self::Json(patch) => {
                let rejected = || Status::invalid(REJECTED);
                apply_json(&mut object, patch).ok_or_else(rejected)?;
            }
            Self::Strategic(patch) => strategic::apply(&mut object, patch)?,
        }
        if !object.is_object() {
            return Err(Status::invalid(REJECTED));
        }
        Ok(object)
    }
}

/// Applies the operations one by one, because their bounds depend on the object. `None` if one cannot be applied.
fn apply_json(object: &mut Value, patch: &json_patch::Patch) -> Option<()> {
    let mut copied = 0;
    for operation in &patch.0 {
        let (path, value): (&PointerBuf, Option<&Value>) = match operation {
            PatchOperation::Add(add) => (&add.path, Some(&add.value)),
            PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
            PatchOperation::Move(moved) => (&moved.path, object.pointer(moved.from.as_str())),
            PatchOperation::Copy(copy) => (&copy.path, object.pointer(copy.from.as_str())),
            PatchOperation::Remove(remove) => (&remove.path, None),
            PatchOperation::Test(test) => (&test.path, None),
        };
        if path.count() + value.map_or(0, depth) > DEPTH_MAX {
            return None;
        }
        if let PatchOperation::Copy(_) = operation {
            copied += value?.to_string().len();
            if copied > COPIED_MAX {
                return None;
            }
        }
        json_patch::patch(object, std::slice::from_ref(operation)).ok()?;
    }
    Some(())
}

/// The levels of nesting of a value that is not nested deeper than [`DEPTH_MAX`].
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn object(body: &[u8]) -> Result<Value, Status> {
    match serde_json::from_slice(body) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err(Status::bad_request("Invalid JSON Patch")),
        Err(fault) => Err(Status::bad_request(format!(
            "error decoding patch: {fault}"
        ))),
    }
}
