//! The audit events of one request, from its authentication until its response has ended.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use super::Audit;
use super::event::{AuditDecision, AuditEvent, AuditStage, ResponseStatus};
use super::policy::{AuditAttributes, AuditLevel, StageSet};
use super::request::Request;
use crate::auth::user::User;

/// Records one request. Clones share the same record, and the response's body holds one: when the last clone is dropped, the request
/// is recorded as complete.
///
/// Nothing is recorded of a request that is forwarded under its caller's own credential and that upstream answers, because upstream
/// records it. Therefore the first event is not written before the response is decided; it carries the time at which the request was
/// received.
#[derive(Clone, Debug)]
pub struct AuditTrail(Arc<Mutex<TrailRecord>>);

#[derive(Debug)]
struct TrailRecord {
    audit: Audit,
    request: Request,
    omitted: StageSet,
    user: Option<Arc<User>>,
    impersonated_user: Option<Arc<User>>,
    decision: Option<AuditDecision>,
    response: Option<ResponseStatus>,
    is_forwarded: bool,
}

impl Audit {
    /// Starts to record a request. `user` is the authenticated user, or `None` for a request without one. Returns `None` if the
    /// policy does not record this request.
    #[must_use]
    pub fn begin(&self, request: Request, user: Option<&Arc<User>>) -> Option<AuditTrail> {
        let verdict = self.0.policy.load().evaluate(AuditAttributes {
            user: user.map(AsRef::as_ref),
            verb: &request.verb,
            target: request.target(),
        });
        (verdict.level != AuditLevel::None)
            .then(|| AuditTrail::new(self.clone(), request, verdict.omitted, user.cloned()))
    }
}

impl AuditTrail {
    fn new(audit: Audit, request: Request, omitted: StageSet, user: Option<Arc<User>>) -> Self {
        Self(Arc::new(Mutex::new(TrailRecord {
            audit,
            request,
            omitted,
            user,
            impersonated_user: None,
            decision: None,
            response: None,
            is_forwarded: false,
        })))
    }

    /// The request's audit id.
    #[must_use]
    pub fn audit_id(&self) -> String {
        self.record().request.audit_id.clone()
    }

    /// Records that the request impersonates `user`.
    pub fn impersonate(&self, user: &Arc<User>) {
        self.record().impersonated_user = Some(Arc::clone(user));
    }

    /// Records the authorizer's decision.
    pub fn decide(&self, decision: AuditDecision) {
        self.record().decision = Some(decision);
    }

    /// Records the response. Only the first call has an effect.
    pub fn respond(&self, status: ResponseStatus) {
        let mut record = self.record();
        if record.response.is_none() {
            record.respond(status);
        }
    }

    /// Whether a response was recorded.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.record().response.is_some()
    }

    /// Discards the record, because the request is forwarded and upstream records it, unless a response is recorded before or afterwards.
    pub fn forget(&self) {
        self.record().is_forwarded = true;
    }

    fn record(&self) -> MutexGuard<'_, TrailRecord> {
        // Every method leaves the record consistent, even if it panics.
        self.0.lock()
    }
}

impl Drop for TrailRecord {
    fn drop(&mut self) {
        if self.response.is_none() && self.is_forwarded {
            return;
        }
        if std::thread::panicking() {
            if self.response.is_none() {
                self.put_received();
            }
            self.response = Some(ResponseStatus::panicked());
            self.put(AuditStage::Panic, Timestamp::now());
            return;
        }
        if self.response.is_none() {
            self.respond(ResponseStatus::closed_early());
        }
        // A request that is not authenticated has a single event, as in the API server.
        if !self.is_unauthenticated() {
            self.put(AuditStage::ResponseComplete, Timestamp::now());
        }
    }
}

impl TrailRecord {
    fn is_unauthenticated(&self) -> bool {
        let code = self.response.as_ref().map(|status| status.code);
        self.user.is_none() && code == Some(401)
    }

    fn respond(&mut self, status: ResponseStatus) {
        if !(self.user.is_none() && status.code == 401) {
            self.put_received();
        }
        self.response = Some(status);
        if self.is_unauthenticated() || self.request.is_long_running() {
            self.put(AuditStage::ResponseStarted, Timestamp::now());
        }
    }

    fn put_received(&self) {
        self.put(AuditStage::RequestReceived, self.request.received_at);
    }

    fn put(&self, stage: AuditStage, stage_at: Timestamp) {
        if self.omitted.contains(stage) {
            return;
        }
        let is_first = stage == AuditStage::RequestReceived;
        let event = AuditEvent {
            audit_id: &self.request.audit_id,
            stage,
            uri: &self.request.uri,
            verb: &self.request.verb,
            user: self.user.as_deref(),
            // The API server writes the first event before impersonation and authorization.
            impersonated_user: self.impersonated_user.as_deref().filter(|_| !is_first),
            decision: self.decision.as_ref().filter(|_| !is_first),
            source_ips: &self.request.source_ips,
            user_agent: &self.request.user_agent,
            object: self.request.object.as_ref(),
            response: self.response.as_ref(),
            received_at: self.request.received_at,
            stage_at,
        };
        self.audit.put(event.to_line());
    }
}
