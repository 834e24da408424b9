//! The passthrough's own responses, as Kubernetes `Status` (docs/PROTOCOL.md §6).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use serde_json::json;

use crate::auth::impersonation::impersonates;
use crate::metrics::PassthroughError;
use crate::upstream::client::ForwardIdentity;

/// The gateway's own Status in place of upstream's response, of which it is an extension: for the audit log, because upstream may not have
/// seen the request.
#[derive(Clone, Debug)]
pub struct OwnStatus {
    /// The machine-readable reason.
    pub reason: &'static str,
    /// The human-readable message.
    pub message: String,
}

/// Why a request has no response from upstream.
#[derive(Debug)]
pub(super) enum ForwardRefusal {
    /// The request has `Impersonate-*` headers and would carry the gateway's identity.
    Impersonation,
    /// The gateway would have to impersonate the caller, but its user cannot be expressed in headers.
    UnsendableUser,
    /// The method is `CONNECT`; the gateway is not a forward proxy.
    Connect,
    /// There is no permit for another request, or none for this client.
    TooMany { retry_after_seconds: u64 },
    /// The request's permit was taken back for a client that has fewer. `may_repeat`: repeating the request does no harm.
    Reclaimed { may_repeat: bool },
    /// The path and upstream's address do not form a valid URI.
    Target,
    /// Upstream switched protocols although no upgrade was requested.
    Unasked,
    /// Upstream did not answer in time.
    Timeout,
    /// The caller's credential or permission ended before upstream answered.
    Ended,
    /// The connection failed. `may_repeat`: repeating the request does no harm.
    Unreachable {
        reason: String,
        label: PassthroughError,
        may_repeat: bool,
    },
}

impl ForwardRefusal {
    /// Why a request must not be forwarded under this identity, if it must not.
    pub(super) fn of<B>(request: &Request<B>, identity: ForwardIdentity) -> Option<Self> {
        if request.method() == Method::CONNECT {
            return Some(Self::Connect);
        }
        (identity == ForwardIdentity::Gateway && impersonates(request.headers()))
            .then_some(Self::Impersonation)
    }

    pub(super) const fn label(&self) -> PassthroughError {
        match self {
            Self::Impersonation | Self::UnsendableUser | Self::Connect | Self::Target => {
                PassthroughError::Refused
            }
            Self::TooMany { .. } | Self::Reclaimed { .. } => PassthroughError::Saturated,
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
            Self::TooMany { .. } | Self::Reclaimed { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                "too many requests to the API server are open, please try again later",
            ),
            Self::Target => (
                StatusCode::BAD_REQUEST,
                "BadRequest",
                "the request path cannot be forwarded",
            ),
            Self::Unasked => (
                StatusCode::BAD_GATEWAY,
                "InternalError",
                "the API server switched protocols without being asked to",
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
        response.extensions_mut().insert(OwnStatus {
            reason,
            message: message.to_owned(),
        });
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Clients repeat a request automatically if `Retry-After` is set, so it is set only where repeating does no harm.
    const fn retry_after_seconds(&self) -> Option<u64> {
        match self {
            Self::TooMany {
                retry_after_seconds,
            } => Some(*retry_after_seconds),
            Self::Unreachable {
                may_repeat: true, ..
            }
            | Self::Reclaimed { may_repeat: true } => Some(1),
            Self::Impersonation
            | Self::UnsendableUser
            | Self::Connect
            | Self::Target
            | Self::Unasked
            | Self::Timeout
            | Self::Ended
            | Self::Reclaimed { .. }
            | Self::Unreachable { .. } => None,
        }
    }
}
