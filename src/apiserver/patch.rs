//! The three kinds of patch: reading a body and applying it to an object. Pure; rules of writing are the storage's.

pub mod json;
pub mod merge;
pub mod strategic;

use serde_json::Value;

use self::strategic::StrategicError;
use super::body::{REJECTED, go_name};
use super::kinds::ServedKind;
use super::{nesting, refusal};
use crate::decode::DEPTH_MAX;
use crate::protocol::status::Status;
use crate::resource::Layout;

/// A patch that has been read and is worth trying.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// RFC 6902.
    Json(Vec<json::Operation>),
    /// Kubernetes' own: lists are merged by key. Compiled-in kinds only.
    Strategic(Value),
}

impl Patch {
    /// Reads a patch of the kind that its content type (without parameters) names.
    ///
    /// # Errors
    /// 415 for another content type, 400 for a body that is no such patch, 413 for too many operations.
    pub fn decode(kind: &ServedKind, content_type: &str, body: &[u8]) -> Result<Self, Status> {
        match (content_type, kind.resource.layout) {
            ("application/merge-patch+json", _) => {
                object(body, "error decoding patch: ", "map[string]interface {}").map(Self::Merge)
            }
            ("application/json-patch+json", _) => json::decode(body).map(Self::Json),
            ("application/strategic-merge-patch+json", Layout::Typed) => {
                object(body, "", "map[string]interface {}").map(Self::Strategic)
            }
            (_, Layout::Typed) => Err(refusal::generic(
                415,
                "UnsupportedMediaType",
                "415: Unsupported Media Type",
            )),
            (_, Layout::Dynamic) => Err(Status::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json",
            )),
        }
    }

    /// How deep this may nest an object that is not.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Merge(patch) | Self::Strategic(patch) => nesting::depth(patch),
            Self::Json(operations) => {
                let depths = operations.iter().map(json::Operation::depth);
                depths.max().unwrap_or_default().min(DEPTH_MAX)
            }
        }
    }

    /// Changes `object` as the patch says; on failure it may be left half changed.
    ///
    /// # Errors
    /// 422 for a patch that does not apply or is too much work, 500 for an unknown directive, as the API server does.
    pub fn apply(&self, object: &mut Value) -> Result<(), Status> {
        match self {
            Self::Merge(patch) => {
                merge::apply(object, patch);
                Ok(())
            }
            Self::Json(operations) => json::apply(object, operations)
                .map_err(|_| refusal::generic(422, "Invalid", REJECTED)),
            Self::Strategic(patch) => {
                strategic::apply(object, patch).map_err(|fault| match fault {
                    StrategicError::UnknownDirective(_) => Status::untyped(fault.to_string()),
                    StrategicError::Compared => {
                        refusal::generic(422, "Invalid", &fault.to_string())
                    }
                })
            }
        }
    }
}

fn object(body: &[u8], preface: &str, wanted: &str) -> Result<Value, Status> {
    let value =
        nesting::parse(body).map_err(|fault| Status::bad_request(format!("{preface}{fault}")))?;
    if value.is_object() {
        Ok(value)
    } else if value.is_null() {
        Err(Status::bad_request("Invalid JSON Patch"))
    } else {
        Err(Status::bad_request(format!(
            "{preface}json: cannot unmarshal {} into Go value of type {wanted}",
            go_name(&value)
        )))
    }
}

#[cfg(test)]
mod tests;
