//! The three kinds of patch: decoding a body, and applying it to an object. Pure. The storage applies the rules of writing to the
//! result.

pub mod json;
pub mod strategic;

use serde_json::Value;

use self::strategic::StrategicError;
use super::json_errors::go_name;
use super::kinds::ServedKind;
use super::{nesting, refusal};
use crate::decode::DEPTH_MAX;
use crate::protocol::status::Status;
use crate::resource::Layout;

/// kube-apiserver's message for a patch that cannot be applied.
const REJECTED: &str = "the server rejected our request due to an error in our request";

/// A patch that has been decoded.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// A JSON merge patch (RFC 7386).
    Merge(Value),
    /// The operations of a JSON patch (RFC 6902).
    Json(Vec<json::Operation>),
    /// A strategic merge patch, whose lists are merged by key. For compiled-in kinds only.
    Strategic(Value),
}

impl Patch {
    /// Decodes a patch. `content_type` must not have parameters.
    ///
    /// # Errors
    /// 415 for an unsupported content type, 400 for a body that is not such a patch, 413 for too many operations.
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

    /// An upper bound on the nesting that the patch can give to an object that is not nested.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Merge(patch) | Self::Strategic(patch) => nesting::depth(patch),
            Self::Json(operations) => {
                let depths = operations.iter().map(json::Operation::depth);
                depths.max().unwrap_or_default().min(DEPTH_MAX)
            }
        }
    }

    /// Applies the patch to `object`. After an error the object may be partly changed.
    ///
    /// # Errors
    /// Like kube-apiserver, 422 for a patch that cannot be applied or is too much work, 500 for an unknown directive.
    pub fn apply(&self, object: &mut Value) -> Result<(), Status> {
        match self {
            Self::Merge(patch) => {
                json_patch::merge(object, patch);
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

/// Parses a body that must be a JSON object. `preface` starts the message of most errors; `expected` is Go's name of the type.
fn object(body: &[u8], preface: &str, expected: &str) -> Result<Value, Status> {
    let value =
        nesting::parse(body).map_err(|fault| Status::bad_request(format!("{preface}{fault}")))?;
    if value.is_object() {
        Ok(value)
    } else if value.is_null() {
        Err(Status::bad_request("Invalid JSON Patch"))
    } else {
        Err(Status::bad_request(format!(
            "{preface}json: cannot unmarshal {} into Go value of type {expected}",
            go_name(&value)
        )))
    }
}

#[cfg(test)]
mod tests;
