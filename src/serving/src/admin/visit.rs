//! A request for a path that not everybody may read, and its entry in the audit log.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Request, Response};
use jiff::Timestamp;

use crate::audit::event::ResponseStatus;
use crate::audit::{Audit, AuditTrail, request};
use crate::auth::caller::{Caller, CallerDenial, CallerRefusal};
use crate::auth::guard::Guard;
use crate::auth::user::User;
use crate::protocol::{audit_id, with_audit_id};

/// The request, apart from its body, and who sent it.
pub(super) struct Visit {
    /// `None` if the gateway does not authenticate callers.
    pub(super) guard: Option<Guard>,
    pub(super) address: IpAddr,
    pub(super) headers: HeaderMap,
    audit: Option<Audit>,
    audit_id: HeaderValue,
    request: request::Request,
    user: Option<Arc<User>>,
    impersonated: Option<Arc<User>>,
    trail: Option<AuditTrail>,
}

impl Visit {
    pub(super) fn of<B>(
        request: &Request<B>,
        address: IpAddr,
        guard: Option<&Guard>,
        audit: Option<&Audit>,
    ) -> Self {
        let headers = request.headers().clone();
        let audit_id = audit_id(&headers);
        let target = request.uri().path_and_query();
        Self {
            guard: guard.cloned(),
            address,
            audit: audit.cloned(),
            request: request::Request {
                audit_id: String::from_utf8_lossy(audit_id.as_bytes()).into_owned(),
                received_at: Timestamp::now(),
                uri: target.map_or("/", |target| target.as_str()).to_owned(),
                path: request.uri().path().to_owned(),
                verb: request.method().as_str().to_ascii_lowercase(),
                object: None,
                source_ips: request::source_ips(&headers, address),
                user_agent: request::user_agent(&headers),
            },
            audit_id,
            headers,
            user: None,
            impersonated: None,
            trail: None,
        }
    }

    /// Notes who sent the request, before it is decided whether that user may.
    pub(super) fn identify(&mut self, caller: &Caller) {
        self.user = Some(Arc::clone(caller.authenticated()));
        self.impersonated = caller
            .impersonator
            .is_some()
            .then(|| Arc::clone(&caller.user));
    }

    /// Notes who sent a request that was refused before it had a caller, such as one that impersonates without the right to.
    pub(super) fn identify_denied(&mut self, denial: CallerDenial) -> CallerRefusal {
        (self.user, self.impersonated) = (denial.user, denial.impersonated);
        denial.refusal
    }

    /// Opens the entry in the audit log. From now on the request is recorded even if its client leaves.
    pub(super) fn record(&mut self) {
        let audit = self.audit.take();
        let trail = audit.and_then(|audit| audit.begin(self.request.clone(), self.user.as_ref()));
        if let (Some(trail), Some(impersonated)) = (&trail, &self.impersonated) {
            trail.impersonate(impersonated);
        }
        self.trail = self.trail.take().or(trail);
    }

    /// Records the response.
    pub(super) fn answered<B>(mut self, response: Response<B>) -> Response<B> {
        self.record();
        if let Some(trail) = &self.trail {
            trail.respond(ResponseStatus::of_code(response.status().as_u16()));
        }
        with_audit_id(response, &self.audit_id)
    }
}
