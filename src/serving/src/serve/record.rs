//! Records requests in the audit log. Without an audit log this costs nothing.

use std::sync::Arc;

use http::HeaderValue;

use super::body::AnswerBody;
use super::client_request::ClientRequest;
use super::resources::ForwardCaller;
use super::service::Service;
use crate::audit::AuditTrail;
use crate::audit::event::{AuditDecision, ObjectReference, ResponseStatus};
use crate::audit::request;
use crate::auth::caller::{Caller, CallerDenial, CallerRefusal};
use crate::auth::guard::Forwarding;
use crate::auth::user::User;
use crate::protocol::audit_id;
use crate::protocol::request::{RequestTarget, decoded_path};
use crate::protocol::status::Status;

impl Service {
    /// Starts the audit entry of a request, of a user or an unknown caller; `None` if the audit policy excludes it.
    pub(super) fn trail(
        &self,
        request: &ClientRequest,
        audit_id: &HeaderValue,
        user: Option<&Arc<User>>,
    ) -> Option<AuditTrail> {
        self.audit
            .as_ref()?
            .begin(describe(request, audit_id), user)
    }

    /// Starts the audit entry of a request of an authenticated caller, with its impersonation.
    pub(super) fn caller_trail(
        &self,
        request: &ClientRequest,
        audit_id: &HeaderValue,
        caller: &Caller,
    ) -> Option<AuditTrail> {
        let trail = self.trail(request, audit_id, Some(caller.authenticated()))?;
        if caller.impersonator.is_some() {
            trail.impersonate(&caller.user);
        }
        Some(trail)
    }

    /// Starts the audit entry of a request that is forwarded, whose caller is known only if the gateway impersonates it.
    pub(super) fn forward_trail(
        &self,
        request: &ClientRequest,
        caller: &ForwardCaller,
    ) -> Option<AuditTrail> {
        self.audit.as_ref()?;
        let audit_id = audit_id(request.http.headers());
        match &caller.forwarding {
            Some(Forwarding::Impersonating { caller, .. }) => {
                self.caller_trail(request, &audit_id, caller)
            }
            Some(Forwarding::AsCaller) | None => self.trail(request, &audit_id, None),
        }
    }

    /// Records a request that was rejected before its caller was known, or before its impersonation was authorized.
    pub(super) fn record_refusal(
        &self,
        request: &ClientRequest,
        audit_id: &HeaderValue,
        denial: &CallerDenial,
        status: impl FnOnce() -> ResponseStatus,
    ) {
        if let Some(trail) = self.trail(request, audit_id, denial.user.as_ref()) {
            if let Some(impersonated) = &denial.impersonated {
                trail.impersonate(impersonated);
            }
            trail.respond(status());
        }
    }
}

impl AnswerBody {
    /// Keeps the audit entry open until the body has been sent. A body that is sent in one piece needs no entry.
    pub(super) fn hold(&mut self, trail: &AuditTrail) {
        match self {
            Self::List(list) => list.trail = Some(trail.clone()),
            Self::Watch(watch) => watch.record(trail.clone()),
            Self::Whole(_) | Self::Stream(_) | Self::Forwarded(..) => {}
        }
    }
}

/// The audit decision that corresponds to a refusal.
pub(super) fn decision(refusal: &CallerRefusal) -> AuditDecision {
    match refusal {
        CallerRefusal::Forbidden { reason, .. } => AuditDecision::Forbid(reason.clone()),
        CallerRefusal::Unauthorized
        | CallerRefusal::Unverified
        | CallerRefusal::Busy
        | CallerRefusal::BadRequest { .. }
        | CallerRefusal::Undecided { .. }
        | CallerRefusal::Failed { .. }
        | CallerRefusal::Forward => AuditDecision::Error,
    }
}

/// A Status as audit events contain it.
#[must_use]
pub fn response_status(status: &Status) -> ResponseStatus {
    let details = status.details.as_deref();
    ResponseStatus {
        status: "Failure",
        message: status.message.clone(),
        reason: status.reason,
        details: details.and_then(|details| serde_json::value::to_raw_value(details).ok()),
        code: status.code,
    }
}

/// The description of a request in audit events.
fn describe(request: &ClientRequest, audit_id: &HeaderValue) -> request::Request {
    let (http, info) = (&request.http, &request.info);
    let (uri, headers) = (http.uri(), http.headers());
    let (verb, object) = match &info.target {
        RequestTarget::Resource(path) => {
            let object = ObjectReference {
                name: info.authorized_name(),
                resource: path.gvr.resource.to_string(),
                namespace: path.namespace.clone().unwrap_or_default(),
                api_group: path.gvr.group.to_string(),
                api_version: path.gvr.version.to_string(),
                subresource: path.subresource.clone().unwrap_or_default(),
            };
            (info.verb.as_str().to_owned(), Some(object))
        }
        RequestTarget::NonResource => (http.method().as_str().to_ascii_lowercase(), None),
    };
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    request::Request {
        audit_id: String::from_utf8_lossy(audit_id.as_bytes()).into_owned(),
        received_at: request.received_at,
        uri: target.to_owned(),
        path: decoded_path(uri).unwrap_or_else(|| uri.path().to_owned()),
        verb,
        object,
        source_ips: request::source_ips(headers, request.connection.address),
        user_agent: request::user_agent(headers),
    }
}
