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
            continue_token: String::new(),
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

    /// 404 for an object that does not exist.
    #[must_use]
    pub fn not_found(gvr: &Gvr, name: &str) -> Self {
        let message = format!("{} {} not found", gvr.group_resource(), quoted(name));
        Self::new(404, "NotFound", message).about(gvr, name)
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

    /// 405 in the form that built-in kinds have.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(StatusDetails::default())
    }

    /// 405 in the form that custom resources have, and watches of resources that cannot be watched.
    #[must_use]
    pub fn verb_not_supported(gvr: &Gvr, verb: &str) -> Self {
        let kind = quoted(&gvr.group_resource());
        let message = format!("{verb} is not supported on resources of kind {kind}");
        Self::new(405, "MethodNotAllowed", message).about(gvr, "")
    }

    /// 409: an update of an outdated version.
    #[must_use]
    pub fn conflict(gvr: &Gvr, name: &str, cause: impl Display) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {}: {cause}",
            gvr.group_resource(),
            quoted(name)
        );
        Self::new(409, "Conflict", message).about(gvr, name)
    }

    /// 409: an object of this name exists.
    #[must_use]
    pub fn already_exists(gvr: &Gvr, name: &str) -> Self {
        let message = format!("{} {} already exists", gvr.group_resource(), quoted(name));
        Self::new(409, "AlreadyExists", message).about(gvr, name)
    }

    /// 410: a list at an exact version that is no longer kept.
    #[must_use]
    pub fn expired_list() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::new(410, "Expired", message)
    }

    /// 410: a continue token whose version is no longer kept. The client may continue with `token`, at the latest version.
    #[must_use]
    pub fn expired_continue(token: impl Into<String>) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start \
            a new list without the continue parameter, or use the continue token in this response to retrieve the \
            remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
            that were created, modified, or deleted between the time the first chunk was returned and now may show \
            up in the list.";
        let mut status = Self::new(410, "Expired", message);
        status.continue_token = token.into();
        status
    }

    /// 410, only within a stream: a watch from a version before `floor`, the oldest one that can be resumed.
    #[must_use]
    pub fn expired_watch(requested: ResourceVersion, floor: ResourceVersion) -> Self {
        let message = format!("too old resource version: {requested} ({floor})");
        Self::new(410, "Expired", message)
    }

    /// 422: faults of the object or options that `details` names. The message lists each as `field: message`, without repetitions;
    /// `subject` is the kind in words.
    #[must_use]
    pub fn invalid(subject: &str, details: StatusDetails) -> Self {
        let mut faults: Vec<String> = Vec::with_capacity(details.causes.len());
        for cause in &details.causes {
            let fault = format!("{}: {}", cause.field, cause.message);
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        let faults = match &*faults {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let name = quoted(&details.name);
        let message = format!("{subject} {name} is invalid: {faults}");
        Self::new(422, "Invalid", message).with_details(details)
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

    /// 500 without a reason: an error that upstream does not convert to a Status of its own (docs/PROTOCOL.md §6.18).
    #[must_use]
    pub fn untyped(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
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
                field: "",
            }],
            retry_after_seconds,
            ..StatusDetails::default()
        })
    }
}
