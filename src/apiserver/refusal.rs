//! What a request is refused with: the parts of a Kubernetes `Status` (protocol.md §6). Knows no HTTP types.

use bytes::Bytes;
use serde::Serialize;

use super::kinds::ServedKind;
use super::render;

/// A request that was refused; `Display` gives the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// HTTP status and `code`.
    pub code: u16,
    /// `reason`; empty for errors that the real server leaves without one.
    pub reason: &'static str,
    /// `message`.
    pub message: String,
    /// `details`, where the real server gives any.
    pub details: Option<Box<Details>>,
}

/// `details` of a `Status`; empty parts are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Object's name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: String,
    /// API group.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub group: String,
    /// Kind or plural resource name, as the real server happens to choose.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: String,
    /// The object's uid, in the `Success` of a deletion.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: String,
    /// What is wrong with which field.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub causes: Vec<Cause>,
    /// Seconds, mirrored by the `Retry-After` header; 0 is absent.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One fault of a rejected object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Such as `FieldValueInvalid`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// Text without the field's name.
    pub message: String,
    /// Path of the field, such as `metadata.name`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub field: String,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The wire form; key order as Go's struct.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    status: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Serialize)]
struct Empty {}

/// The `Status` that answers a deletion which left nothing behind.
#[must_use]
pub fn deleted(kind: &ServedKind, name: &str, uid: &str) -> Bytes {
    let details = Details {
        uid: uid.to_owned(),
        ..kind.resource_details(name)
    };
    render::json(&Status {
        kind: "Status",
        api_version: "v1",
        metadata: Empty {},
        status: "Success",
        message: "",
        reason: "",
        details: Some(&details),
        code: None,
    })
}

impl Refusal {
    /// Compact JSON, without a trailing newline.
    #[must_use]
    pub fn body(&self) -> Bytes {
        render::json(&Status {
            kind: "Status",
            api_version: "v1",
            metadata: Empty {},
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_deref(),
            code: Some(self.code),
        })
    }

    /// 400 without details.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::bare(400, "BadRequest", message)
    }

    /// An error that the real server passes on as it is: 500, no reason.
    pub(super) fn unclassified(message: impl Into<String>) -> Self {
        Self::bare(500, "", message)
    }

    /// A refusal without details.
    pub(super) fn bare(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
        }
    }

    /// A refusal that is written before any object is looked at: `details` is `{}`.
    pub(super) fn generic(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            details: Some(Box::default()),
            ..Self::bare(code, reason, message)
        }
    }

    /// 404 for a path inside a known group (protocol.md §6.1).
    pub(super) fn unknown_resource() -> Self {
        Self::generic(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// 405 of compiled-in kinds (protocol.md §1.5).
    pub(super) fn method_not_allowed() -> Self {
        Self::generic(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 404 for an absent object.
    pub(super) fn not_found(kind: &ServedKind, name: &str) -> Self {
        Self {
            code: 404,
            reason: "NotFound",
            message: format!("{} \"{name}\" not found", kind.qualified_resource()),
            details: Some(Box::new(kind.resource_details(name))),
        }
    }

    /// 409 for a name that is taken; `addition` follows the usual words.
    pub(super) fn already_exists(kind: &ServedKind, name: &str, addition: &str) -> Self {
        Self {
            code: 409,
            reason: "AlreadyExists",
            message: format!(
                "{} \"{name}\" already exists{addition}",
                kind.qualified_resource()
            ),
            details: Some(Box::new(kind.resource_details(name))),
        }
    }

    /// 409 for an update of another state than the stored one.
    pub(super) fn conflict(kind: &ServedKind, name: &str, why: &str) -> Self {
        Self {
            code: 409,
            reason: "Conflict",
            message: format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                kind.qualified_resource()
            ),
            details: Some(Box::new(kind.resource_details(name))),
        }
    }

    /// 409 for a deletion's precondition, which the real server words with the kind.
    pub(super) fn precondition(kind: &ServedKind, name: &str, why: &str) -> Self {
        Self {
            code: 409,
            reason: "Conflict",
            message: format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                kind.qualified_kind()
            ),
            details: Some(Box::new(kind.kind_details(name))),
        }
    }

    /// 422 naming the kind; `causes` is not empty.
    pub(super) fn invalid(kind: &ServedKind, name: &str, causes: Vec<Cause>) -> Self {
        Self::invalid_as(
            &kind.qualified_kind(),
            name,
            kind.kind_details(name),
            causes,
        )
    }

    /// 422 with a subject and details of the caller's choice.
    pub(super) fn invalid_as(
        subject: &str,
        name: &str,
        details: Details,
        causes: Vec<Cause>,
    ) -> Self {
        let texts: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let faults = match texts.as_slice() {
            [only] => only.clone(),
            _ => format!("[{}]", texts.join(", ")),
        };
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("{subject} \"{name}\" is invalid: {faults}"),
            details: Some(Box::new(Details { causes, ..details })),
        }
    }
}

impl Cause {
    /// A value that breaks a rule; `value` as Go prints it.
    pub(super) fn invalid(field: &str, value: &str, rule: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {rule}"),
            field: field.to_owned(),
        }
    }

    /// A value that must be there.
    pub(super) fn required(field: &str, rule: &str) -> Self {
        Self {
            reason: "FieldValueRequired",
            message: format!("Required value: {rule}"),
            field: field.to_owned(),
        }
    }

    /// A value that may not be there.
    pub(super) fn forbidden(field: &str, rule: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {rule}"),
            field: field.to_owned(),
        }
    }
}
