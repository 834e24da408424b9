//! The few answers of kind `Status` that the gateway never gives (protocol.md §6). Knows no HTTP types.

use bytes::Bytes;
use serde::Serialize;

use super::kinds::ServedKind;
use super::render;
use crate::protocol::status::{Cause, Details, Status};
use crate::view::selector::quoted;

/// A `Status` of something that went well; key order as Go's struct.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Success<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    status: &'static str,
    details: &'a Details,
}

#[derive(Serialize)]
struct Empty {}

/// The `Status` that answers a deletion which left nothing behind.
#[must_use]
pub(super) fn deleted(kind: &ServedKind, name: &str, uid: &str) -> Bytes {
    render::json(&Success {
        kind: "Status",
        api_version: "v1",
        metadata: Empty {},
        status: "Success",
        details: &Details {
            uid: uid.to_owned(),
            ..kind.resource_details(name)
        },
    })
}

/// A refusal that is written before any object is looked at: `details` is `{}`.
pub(super) fn generic(code: u16, reason: &'static str, message: &str) -> Status {
    Status::new(code, reason, message).with_details(Details::default())
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
pub(super) fn invalid(kind: &ServedKind, name: &str, causes: Vec<Cause>) -> Status {
    let details = Details {
        causes,
        ..kind.kind_details(name)
    };
    Status::invalid(&kind.qualified_kind(), details)
}
