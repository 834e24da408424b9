//! The `Status` bodies that only the embedded API server needs; the others are in `protocol::status` (docs/PROTOCOL.md §6).

use bytes::Bytes;
use serde::Serialize;

use super::kinds::ServedKind;
use super::render;
use crate::protocol::status::{Status, StatusCause, StatusDetails};
use crate::selector::quoted;

/// A `Status` of success. The order of the fields is that of Go's struct.
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

/// The `Status` that answers a deletion that removed the object.
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

/// An error that concerns no particular object: `details` is `{}`.
pub(super) fn generic(code: u16, reason: &'static str, message: &str) -> Status {
    Status::new(code, reason, message).with_details(StatusDetails::default())
}

/// 409 for a failed precondition of a deletion. Unlike other conflicts, kube-apiserver's message names the kind.
pub(super) fn precondition(kind: &ServedKind, name: &str, why: &str) -> Status {
    let message = format!(
        "Operation cannot be fulfilled on {} {}: {why}",
        kind.qualified_kind(),
        quoted(name)
    );
    Status::new(409, "Conflict", message).with_details(kind.kind_details(name))
}

/// 422 with the kind in message and details. `causes` must not be empty.
pub(super) fn invalid(kind: &ServedKind, name: &str, causes: Vec<StatusCause>) -> Status {
    let details = StatusDetails {
        causes,
        ..kind.kind_details(name)
    };
    Status::invalid(&kind.qualified_kind(), details)
}

/// 400 for parameters of a read or of a deletion of a collection that are not certain to be valid; the words are not kube-apiserver's.
pub(super) fn bad_parameters() -> Status {
    Status::bad_request("a parameter of the request is invalid")
}
