//! Records requests in the audit log. Without an audit log this costs nothing.

use http::{HeaderValue, Request};
use hyper::body::Incoming;
use jiff::Timestamp;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::{AnswerBody, ReadRequest, Service};
use crate::audit::event::{AuditDecision, ObjectReference, ResponseStatus};
use crate::audit::request::{self, ConnectionAddress};
use crate::audit::{Audit, AuditTrail};
use crate::auth::caller::{Caller, CallerRefusal};
use crate::auth::user::User;
use crate::protocol::request::{Query, RequestTarget, authorized_name, decoded_path, verb};
use crate::protocol::status::Status;
use crate::serve::resources::Resources;

impl<R: Resources> Service<R> {
    /// Sets the audit log, if there is one.
    #[must_use]
    pub fn audited(self, audit: Option<Audit>) -> Self {
        Self { audit, ..self }
    }

    /// Starts the audit entry of a request, of a user or an unknown caller; `None` if the audit policy excludes it.
    pub(super) fn trail(
        &self,
        request: &Request<Incoming>,
        audit_id: &HeaderValue,
        user: Option<&Arc<User>>,
    ) -> Option<AuditTrail> {
        let audit = self.audit.as_ref()?;
        audit.begin(describe(request, audit_id)?, user)
    }

    /// Starts the audit entry of a request of an authenticated caller, with its impersonation.
    pub(super) fn caller_trail(
        &self,
        request: &Request<Incoming>,
        audit_id: &HeaderValue,
        caller: &Caller,
    ) -> Option<AuditTrail> {
        let trail = self.trail(request, audit_id, Some(caller.authenticated()))?;
        if caller.impersonator.is_some() {
            trail.impersonate(&caller.user);
        }
        Some(trail)
    }

    /// Records a request that was rejected before its caller was known, or before its impersonation was authorized.
    pub(super) fn record_refusal(
        &self,
        request: &Request<Incoming>,
        audit_id: &HeaderValue,
        (refusal, status): (&CallerRefusal, ResponseStatus),
    ) {
        let user = match refusal {
            CallerRefusal::Forbidden { user, .. } => Some(user),
            CallerRefusal::Unauthorized
            | CallerRefusal::BadRequest { .. }
            | CallerRefusal::Failed { .. }
            | CallerRefusal::Forward => None,
        };
        if let Some(trail) = self.trail(request, audit_id, user) {
            trail.respond(status);
        }
    }
}

impl ReadRequest {
    /// Records the decision of the authorization.
    pub(super) fn decide(&self, decision: impl FnOnce() -> AuditDecision) {
        if let Some(trail) = &self.trail {
            trail.decide(decision());
        }
    }

    /// Records the response, unless one is recorded already.
    pub(super) fn respond(&self, status: impl FnOnce() -> ResponseStatus) {
        if let Some(trail) = &self.trail {
            trail.respond(status());
        }
    }
}

impl<F> AnswerBody<F> {
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
        | CallerRefusal::BadRequest { .. }
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

/// The description of a request in audit events; `None` for paths that are rejected before the caller is authenticated.
fn describe(request: &Request<Incoming>, audit_id: &HeaderValue) -> Option<request::Request> {
    let (uri, headers) = (request.uri(), request.headers());
    let query = Query::parse(uri.query());
    let (verb, object) = match RequestTarget::parse(uri).ok()? {
        RequestTarget::Resource(path) => {
            let verb = verb(request.method(), &path, &query);
            let object = ObjectReference {
                name: authorized_name(&path, verb, &query).unwrap_or_default(),
                resource: path.gvr.resource.to_string(),
                namespace: path.namespace.unwrap_or_default(),
                api_group: path.gvr.group.to_string(),
                api_version: path.gvr.version.to_string(),
                subresource: path.subresource.unwrap_or_default(),
            };
            (verb.as_str().to_owned(), Some(object))
        }
        RequestTarget::NonResource => (request.method().as_str().to_ascii_lowercase(), None),
    };
    let address = request.extensions().get::<ConnectionAddress>();
    let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.0);
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    Some(request::Request {
        audit_id: String::from_utf8_lossy(audit_id.as_bytes()).into_owned(),
        received_at: request
            .extensions()
            .get()
            .copied()
            .unwrap_or_else(Timestamp::now),
        uri: target.to_owned(),
        path: decoded_path(uri).unwrap_or_else(|| uri.path().to_owned()),
        verb,
        object,
        source_ips: request::source_ips(headers, address),
        user_agent: request::user_agent(headers),
    })
}
