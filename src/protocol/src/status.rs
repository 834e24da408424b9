//! The one table from errors to responses: Kubernetes Status objects and a few plain texts. It only writes them; callers decide.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::indent::Indenter;
use crate::resource::Encoding;

mod json;
mod plain;
mod protobuf;
mod rows;

pub use json::go_json;
pub use plain::PlainText;
pub use rows::ForbiddenAccess;

/// The value of `Cache-Control` on every response that has passed the authentication filter (docs/PROTOCOL.md §3.11).
pub const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");

/// A failure as a Kubernetes `v1` Status (docs/PROTOCOL.md §6). Each constructor is one row of the tables there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason such as `NotFound`; empty if the API server gives none.
    pub reason: &'static str,
    /// Human-readable message.
    pub message: String,
    /// Details. `None` and empty details are different on the wire.
    pub details: Option<Box<StatusDetails>>,
}

/// The format of a Status in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusForm {
    /// Compact JSON.
    #[default]
    Json,
    /// Indented JSON.
    Indented,
    /// Protobuf.
    Protobuf,
}

/// The object or options that a Status is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// Name of the object.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: String,
    /// API group.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub group: String,
    /// Kind; for most errors the resource's plural name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: String,
    /// The individual faults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Seconds after which to retry; 0 means absent. Repeated in the `Retry-After` header.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One of several faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusCause {
    /// Machine-readable type of the fault.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// Human-readable message.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: Cow<'static, str>,
}

impl Status {
    /// Compact JSON with a final newline, byte for byte as the API server writes it.
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        let mut json = go_json(&self.wire());
        json.push(b'\n');
        json.into()
    }

    /// JSON indented by two spaces, without a final newline, for clients that get indented responses (docs/PROTOCOL.md §5.6).
    #[must_use]
    pub fn to_pretty_json(&self) -> Bytes {
        Indenter::default().piece(&go_json(&self.wire()))
    }

    /// The ERROR event that ends a watch stream with this failure (docs/PROTOCOL.md §4.3).
    #[must_use]
    pub fn error_event(&self, encoding: Encoding) -> Bytes {
        match encoding {
            Encoding::Json => self.error_line(),
            Encoding::Protobuf => self.error_frame(),
        }
    }

    fn error_line(&self) -> Bytes {
        let mut line = b"{\"type\":\"ERROR\",\"object\":".to_vec();
        line.append(&mut go_json(&self.wire()));
        line.extend_from_slice(b"}\n");
        line.into()
    }

    /// Seconds after which the client may retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then_some(seconds)
    }

    /// The HTTP response in a given format.
    #[must_use]
    pub fn to_response_in(&self, form: StatusForm) -> Response<Bytes> {
        let mut response = self.to_response();
        match form {
            StatusForm::Json => {}
            StatusForm::Indented => *response.body_mut() = self.to_pretty_json(),
            StatusForm::Protobuf => {
                let media_type = HeaderValue::from_static(Encoding::Protobuf.media_type());
                response.headers_mut().insert(CONTENT_TYPE, media_type);
                *response.body_mut() = self.to_protobuf();
            }
        }
        response
    }

    /// The HTTP response in compact JSON with the headers of docs/PROTOCOL.md §3.11, except `Audit-Id` and `Date`.
    #[must_use]
    pub fn to_response(&self) -> Response<Bytes> {
        let mut response = Response::new(self.to_json());
        *response.status_mut() = status_code(self.code);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, NO_CACHE);
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if response.status() == StatusCode::FORBIDDEN {
            let headers = response.headers_mut();
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        }
        response
    }

    fn wire(&self) -> StatusFields<'_> {
        StatusFields {
            kind: "Status",
            api_version: "v1",
            metadata: StatusMetadata {},
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_deref(),
            code: self.code,
        }
    }
}

fn status_code(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The fields in wire order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusFields<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: StatusMetadata,
    status: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a StatusDetails>,
    code: u16,
}

/// Written as `{}`.
#[derive(Serialize)]
struct StatusMetadata {}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
