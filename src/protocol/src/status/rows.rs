//! The rows of the error table: one constructor for each failure that the gateway responds with itself.

use std::fmt::Display;

use super::plain::sanitized;
use super::{Status, StatusCause, StatusDetails};
use crate::resource::{Gvr, ResourceVersion};
use crate::selector::quoted;

/// The access that a user was denied (docs/PROTOCOL.md §6.7).
#[derive(Clone, Copy, Debug)]
pub struct ForbiddenAccess<'a> {
    /// The user's name.
    pub user: &'a str,
    /// The verb as authorization names it.
    pub verb: &'a str,
    /// The resource.
    pub resource: &'a Gvr,
    /// The subresource; empty for none.
    pub subresource: &'a str,
    /// The namespace; empty for the cluster scope.
    pub namespace: &'a str,
    /// The object's name, or the one that a field selector requires; empty for none.
    pub name: &'a str,
    /// The authorizer's reason; empty for none.
    pub reason: &'a str,
}

impl Status {
    /// A failure without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
        }
    }

    /// Adds details. Empty details are written as `{}`.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    fn about(self, gvr: &Gvr, name: &str) -> Self {
        self.with_details(StatusDetails {
            name: name.to_owned(),
            group: gvr.group.to_string(),
            kind: gvr.resource.to_string(),
            ..StatusDetails::default()
        })
    }

    /// Adds the number of seconds after which to retry.
    #[must_use]
    pub fn retry_in(self, seconds: u32) -> Self {
        self.with_details(StatusDetails {
            retry_after_seconds: seconds,
            ..StatusDetails::default()
        })
    }

    /// 400: an invalid request. The message says why; there are no details.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 508: the gateway's own request, or one that it has forwarded, came back to it.
    #[must_use]
    pub fn loop_detected() -> Self {
        Self::new(
            508,
            "LoopDetected",
            "the request has passed this gateway already: the address of its API server leads back to it",
        )
    }

    /// 401: missing or invalid credentials.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 for a resource request.
    #[must_use]
    pub fn forbidden(denied: &ForbiddenAccess<'_>) -> Self {
        let ForbiddenAccess { user, verb, .. } = denied;
        let gvr = denied.resource;
        let target = match denied.subresource {
            "" => gvr.resource.to_string(),
            subresource => format!("{}/{subresource}", gvr.resource),
        };
        let scope = match denied.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quoted(namespace)),
        };
        let mut cause = sanitized(&format!(
            "User {} cannot {verb} resource {} in API group {} {scope}",
            quoted(user),
            quoted(&target),
            quoted(&gvr.group),
        ));
        if !denied.reason.is_empty() {
            cause.push_str(": ");
            cause.push_str(denied.reason);
        }
        let mut subject = gvr.group_resource();
        if !denied.name.is_empty() {
            subject = format!("{subject} {}", quoted(denied.name));
        }
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {cause}"))
            .about(gvr, denied.name)
    }

    /// 403 for a non-resource path.
    #[must_use]
    pub fn forbidden_path(user: &str, verb: &str, path: &str, reason: &str) -> Self {
        let mut cause = sanitized(&format!(
            "User {} cannot {verb} path {}",
            quoted(user),
            quoted(path)
        ));
        if !reason.is_empty() {
            cause.push_str(": ");
            cause.push_str(reason);
        }
        Self::new(403, "Forbidden", format!("forbidden: {cause}"))
            .with_details(StatusDetails::default())
    }

    /// 404 for a resource that a built-in group does not have.
    #[must_use]
    pub fn unknown_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(StatusDetails::default())
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(StatusDetails::default())
    }

    /// 410, only within a stream: a watch from a version before `floor`, the oldest one that can be resumed.
    #[must_use]
    pub fn expired_watch(requested: ResourceVersion, floor: ResourceVersion) -> Self {
        let message = format!("too old resource version: {requested} ({floor})");
        Self::new(410, "Expired", message)
    }

    /// 429: over a limit, or the cache is not ready.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).retry_in(retry_after_seconds)
    }

    /// 429: the resource's cache is being filled (docs/PROTOCOL.md §6.9).
    #[must_use]
    pub fn initializing(retry_after_seconds: u32) -> Self {
        Self::too_many_requests("storage is (re)initializing", retry_after_seconds)
    }

    /// 500 with the reason `InternalError`.
    #[must_use]
    pub fn internal_error(cause: impl Display) -> Self {
        let cause = cause.to_string();
        let message = format!("Internal error occurred: {cause}");
        Self::new(500, "InternalError", message).with_details(StatusDetails {
            causes: vec![StatusCause {
                message: cause.into(),
                ..StatusCause::default()
            }],
            ..StatusDetails::default()
        })
    }

    /// 504: the requested version has not been reached. With 0 seconds there is no hint when to retry.
    #[must_use]
    pub fn timeout_too_large(
        requested: ResourceVersion,
        current: ResourceVersion,
        retry_after_seconds: u32,
    ) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self::new(504, "Timeout", message).with_details(StatusDetails {
            causes: vec![StatusCause {
                reason: "ResourceVersionTooLarge",
                message: "Too large resource version".into(),
            }],
            retry_after_seconds,
            ..StatusDetails::default()
        })
    }
}
