//! `Status`, the body of every error, with kube-apiserver's texts (docs/PROTOCOL.md §6).

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::json;
use super::kinds::ServedKind;

/// Media type of all JSON.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// HTTP status code. In an ERROR event 0 leaves the code out.
    pub code: u16,
    /// Reason; empty for a few errors that have none.
    pub reason: &'static str,
    /// Message.
    pub message: String,
    /// What it is about. None and empty details differ on the wire.
    pub details: Option<Box<Details>>,
    /// A continue token that is valid, in place of the one that expired.
    pub continue_token: String,
}

/// The object or options that a [`Status`] is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are those of Kubernetes")]
pub struct Details {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub group: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub causes: Vec<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names are those of Kubernetes")]
pub struct Cause {
    pub reason: &'static str,
    pub message: &'static str,
}

impl Details {
    /// Details of an object, with the plural name as kind.
    pub(super) fn of(kind: &ServedKind, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.plural.clone(),
            ..Self::default()
        }
    }
}

impl Status {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: String::new(),
        }
    }

    pub(super) fn with(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// An error of the server that is not a `Status` there.
    pub(super) fn untyped(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(super) fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message).with(Details::default())
    }

    pub(super) fn not_found(kind: &ServedKind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified_plural());
        Self::new(404, "NotFound", message).with(Details::of(kind, name))
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with(Details::default())
    }

    pub(super) fn already_exists(kind: &ServedKind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified_plural());
        Self::new(409, "AlreadyExists", message).with(Details::of(kind, name))
    }

    pub(super) fn conflict(kind: &ServedKind, name: &str, why: &str) -> Self {
        let plural = kind.qualified_plural();
        let message = format!("Operation cannot be fulfilled on {plural} {name:?}: {why}");
        Self::new(409, "Conflict", message).with(Details::of(kind, name))
    }

    pub(super) fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    /// 422. Its text and details are not kube-apiserver's.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message).with(Details::default())
    }

    pub(super) fn expired_list() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::new(410, "Expired", message)
    }

    pub(super) fn expired_token(continue_token: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
        Self {
            continue_token,
            ..Self::new(410, "Expired", message)
        }
    }

    pub(super) fn expired_watch(version: u64, floor: u64) -> Self {
        let message = format!("too old resource version: {version} ({floor})");
        Self::new(410, "Expired", message)
    }

    /// 504 for a version that was not reached in time.
    pub(super) fn version_too_large(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        Self::new(504, "Timeout", message).with(Details {
            causes: vec![Cause {
                reason: "ResourceVersionTooLarge",
                message: "Too large resource version",
            }],
            retry_after_seconds: Some(1),
            ..Details::default()
        })
    }

    fn wire(&self) -> Wire<'_> {
        Wire {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata {
                continue_token: &self.continue_token,
            },
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_deref(),
            code: self.code,
        }
    }

    /// The ERROR event of a watch.
    pub(super) fn error_event(&self) -> Bytes {
        let object = json::compact(&self.wire());
        [br#"{"type":"ERROR","object":"#.as_slice(), &object, b"}\n"]
            .concat()
            .into()
    }

    /// The response, indented if the client accepts nothing but conversions.
    pub(super) fn to_response(&self, is_indented: bool) -> Response<Bytes> {
        let body = if is_indented {
            json::indented(&self.wire())
        } else {
            [json::compact(&self.wire()), b"\n".to_vec()].concat()
        };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        let retry_after = self.details.as_ref().and_then(|d| d.retry_after_seconds);
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.code == 403 {
            headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        }
        response
    }
}

/// A response of plain text, which browsers must not interpret.
pub(super) fn plain_text(code: StatusCode, text: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = code;
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    response
}

/// The answer to a path that is not served at all.
pub(super) fn page_not_found() -> Response<Bytes> {
    plain_text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// The answer to a deletion that removed the object.
pub(super) fn deleted(kind: &ServedKind, name: &str, uid: &str) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Success {
        kind: &'static str,
        api_version: &'static str,
        metadata: Metadata<'static>,
        status: &'static str,
        details: Details,
    }
    json::compact(&Success {
        kind: "Status",
        api_version: "v1",
        metadata: Metadata { continue_token: "" },
        status: "Success",
        details: Details {
            uid: uid.to_owned(),
            ..Details::of(kind, name)
        },
    })
}

/// The fields in the order of the wire.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Metadata<'a>,
    status: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    #[serde(skip_serializing_if = "is_zero")]
    code: u16,
}

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(rename = "continue", skip_serializing_if = "str::is_empty")]
    continue_token: &'a str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(code: &u16) -> bool {
    *code == 0
}
