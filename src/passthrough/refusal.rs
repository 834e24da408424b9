//! Answers of the pass-through's own, as Kubernetes `Status` (docs/PROTOCOL.md §6).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;

use crate::metrics::PassthroughError;

/// Why a request has no answer from upstream.
#[derive(Debug)]
pub(super) enum ForwardRefusal {
    /// `Impersonate-*` where the gateway's identity would be used.
    Impersonation,
    /// The caller would have to be impersonated, and a part of who it is cannot be sent in a header.
    UnsendableUser,
    /// `CONNECT`: this is no forward proxy.
    Connect,
    /// No room for another request upstream, or none for this client: for so many seconds, about.
    TooMany { retry_after_seconds: u64 },
    /// The path does not make a URI together with upstream's address.
    Target,
    /// Upstream changed protocols without being asked to.
    Unasked,
    /// Upstream did not answer in time.
    Timeout,
    /// The caller's credential or permission ended before upstream had answered.
    Ended,
    /// No connection, or it broke. `may_repeat`: the request has had no effect.
    Unreachable {
        reason: String,
        label: PassthroughError,
        may_repeat: bool,
    },
}

impl ForwardRefusal {
    /// What it is counted as.
    pub(super) const fn label(&self) -> PassthroughError {
        match self {
            Self::Impersonation | Self::UnsendableUser | Self::Connect | Self::Target => {
                PassthroughError::Refused
            }
            Self::TooMany { .. } => PassthroughError::Saturated,
            Self::Unasked => PassthroughError::Broken,
            Self::Timeout => PassthroughError::Timeout,
            Self::Ended => PassthroughError::Ended,
            Self::Unreachable { label, .. } => *label,
        }
    }

    pub(super) fn into_response(self) -> Response<Bytes> {
        let (status, reason, message) = match &self {
            Self::Impersonation => (
                StatusCode::FORBIDDEN,
                "Forbidden",
                "impersonation is not available: this gateway talks to the API server under its own identity",
            ),
            Self::UnsendableUser => (
                StatusCode::FORBIDDEN,
                "Forbidden",
                "the caller's name, uid, groups or extra fields cannot be sent in headers, so the gateway cannot act for it",
            ),
            Self::Connect => (
                StatusCode::NOT_FOUND,
                "NotFound",
                "the server could not find the requested resource",
            ),
            Self::TooMany { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                "too many requests to the API server are open, please try again later",
            ),
            Self::Target => (
                StatusCode::BAD_REQUEST,
                "BadRequest",
                "the request path cannot be passed on",
            ),
            Self::Unasked => (
                StatusCode::BAD_GATEWAY,
                "InternalError",
                "the API server changed protocols without being asked to",
            ),
            Self::Timeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "Timeout",
                "the API server did not answer in time",
            ),
            Self::Ended => (StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"),
            Self::Unreachable { reason, .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                reason.as_str(),
            ),
        };
        let retry_after = self.retry_after_seconds();
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": status.as_u16(),
        });
        if let Some(seconds) = retry_after {
            body["details"] = json!({ "retryAfterSeconds": seconds });
        }
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Clients repeat a request by themselves when told when, so this is said only where repeating does no harm.
    const fn retry_after_seconds(&self) -> Option<u64> {
        match self {
            Self::TooMany {
                retry_after_seconds,
            } => Some(*retry_after_seconds),
            Self::Unreachable {
                may_repeat: true, ..
            } => Some(1),
            Self::Impersonation
            | Self::UnsendableUser
            | Self::Connect
            | Self::Target
            | Self::Unasked
            | Self::Timeout
            | Self::Ended
            | Self::Unreachable { .. } => None,
        }
    }
}
