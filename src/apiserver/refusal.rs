//! The few answers of kind `Status` that the gateway never gives (docs/PROTOCOL.md §6). Knows no HTTP types.

use bytes::Bytes;
use serde::Serialize;

use super::kinds::ServedKind;
use super::render;
use crate::protocol::status::{Status, StatusCause, StatusDetails};
use crate::view::selector::quoted;

/// A `Status` of something that went well; key order as Go's struct.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Success<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: EmptyObject,
    status: &'static str,
    details: &'a StatusDetails,
}

#[derive(Serialize)]
struct EmptyObject {}

/// The `Status` that answers a deletion which left nothing behind.
#[must_use]
pub(super) fn deleted(kind: &ServedKind, name: &str, uid: &str) -> Bytes {
    render::json(&Success {
        kind: "Status",
        api_version: "v1",
        metadata: EmptyObject {},
        status: "Success",
        details: &StatusDetails {
            uid: uid.to_owned(),
            ..kind.resource_details(name)
        },
    })
}

/// A refusal that is written before any object is looked at: `details` is `{}`.
pub(super) fn generic(code: u16, reason: &'static str, message: &str) -> Status {
    Status::new(code, reason, message).with_details(StatusDetails::default())
}

/// 409 for a deletion's precondition, which the real server words with the kind.
pub(super) fn precondition(kind: &ServedKind, name: &str, why: &str) -> Status {
    let message = format!(
        "Operation cannot be fulfilled on {} {}: {why}",
        kind.qualified_kind(),
        quoted(name)
    );
    Status::new(409, "Conflict", message).with_details(kind.kind_details(name))
}

/// 422 naming the kind; `causes` is not empty.
pub(super) fn invalid(kind: &ServedKind, name: &str, causes: Vec<StatusCause>) -> Status {
    let details = StatusDetails {
        causes,
        ..kind.kind_details(name)
    };
    Status::invalid(&kind.qualified_kind(), details)
}
