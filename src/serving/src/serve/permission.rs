//! Authenticates and authorizes callers. Decides nothing itself: it asks the guard, and writes refusals as the API server does.

use std::pin::pin;
use std::time::Duration;

use http::HeaderValue;
use tokio::time::timeout;

use super::body::AnswerBody;
use super::client_request::ClientRequest;
use super::denial::DenialResponse;
use super::read_request::ReadRequest;
use super::record::decision;
use super::request_timeout::{LIMIT, before_deadline, timeout_response};
use super::resources::{ForwardCaller, Permission, expiry};
use super::service::{Service, ServiceResponse};
use super::side::{ReadSide, RuledForward, user_of};
use crate::audit::AuditTrail;
use crate::audit::event::{AuditDecision, ResponseStatus};
use crate::auth::access::{Access, ResourceAccess};
use crate::auth::bearer::{self, TokenHeader};
use crate::auth::caller::{Caller, CallerDenial, CallerRefusal, Continuity};
use crate::auth::guard::{Authorization, Forwarding, Guard};
use crate::fairness::Peer;
use crate::protocol::request::{PathForm, RequestInfo, ResourcePath};
use crate::protocol::status::{Status, StatusForm};
use crate::protocol::{audit_id, with_audit_id};
use crate::resource::Gvr;

/// A read that its caller may have.
pub(super) struct AuthorizedRead {
    pub(super) request: Box<ReadRequest>,
    /// The client whose share of permits pays for the read.
    pub(super) peer: Peer,
    /// `None` if callers are not authenticated.
    pub(super) permission: Option<Permission>,
    /// The request's entry in the audit log; `None` if it is not recorded.
    pub(super) trail: Option<AuditTrail>,
}

/// A read that is not authorized here.
pub(super) struct DeniedRead {
    pub(super) request: Box<ReadRequest>,
    /// As in [`AuthorizedRead`]; `None`, too, if the refusal of an unknown caller is recorded already.
    pub(super) trail: Option<AuditTrail>,
    /// `None` if the request has to be forwarded.
    pub(super) response: Option<ServiceResponse>,
    /// How the serving rules forward it, if they do.
    pub(super) ruled: RuledForward,
}

impl AuthorizedRead {
    /// The caller, if the request is forwarded after all.
    pub(super) fn forward_caller(&self) -> ForwardCaller {
        ForwardCaller {
            peer: self.peer,
            forwarding: self.permission.as_ref().map(Permission::forwarding),
            permission: self.permission.clone(),
            token_user: None,
        }
    }
}

impl Service {
    /// Authenticates the caller and authorizes the read. Does nothing if callers are not authenticated. `has_open_rules` says whether the
    /// serving rules wait for the user; a read that they forward is not authorized.
    pub(super) async fn authorize(
        &self,
        read: Box<ReadRequest>,
        request: &ClientRequest,
        has_open_rules: bool,
    ) -> Result<AuthorizedRead, DeniedRead> {
        let identity = &request.connection.identity;
        let Some(guard) = &self.guard else {
            return Ok(AuthorizedRead {
                peer: identity.peer,
                permission: None,
                trail: self.trail(request, &read.audit_id, None),
                request: read,
            });
        };
        let continuity = match request.info.resumes_watch() {
            true => Continuity::Resumed,
            false => Continuity::New,
        };
        let authenticated = guard.authenticate(request.http.headers(), identity, continuity);
        let authenticated = before_deadline(read.deadline, pin!(authenticated)).await;
        let caller = match authenticated {
            Some(Ok(caller)) => caller,
            // Upstream authenticates the caller itself, and a rule may want it to answer.
            Some(Err(denial)) if has_open_rules && is_undecided(&denial.refusal) => {
                let trail = self.trail(request, &read.audit_id, denial.user.as_ref());
                return Err(DeniedRead {
                    request: read,
                    trail,
                    response: None,
                    ruled: RuledForward::default(),
                });
            }
            Some(Err(denial)) => return Err(self.unauthenticated(read, request, &denial)),
            None => {
                let trail = self.trail(request, &read.audit_id, None);
                return Err(timed_out(read, trail));
            }
        };
        let trail = self.caller_trail(request, &read.audit_id, &caller);
        if has_open_rules
            && let ReadSide::Upstream(ruled) = self.side(&read, request, user_of(&caller))
        {
            return Err(DeniedRead {
                request: read,
                trail,
                response: None,
                ruled,
            });
        }
        let access = access(&read.path, &request.info);
        let authorized = guard.authorize(&caller, &access, continuity);
        let authorized = before_deadline(read.deadline, pin!(authorized)).await;
        let Authorization { lease, verdict } = match authorized {
            Some(Ok(authorization)) => authorization,
            Some(Err(refusal)) => return Err(self.denied(read, trail, request, &refusal)),
            None => return Err(timed_out(read, trail)),
        };
        if let Some(trail) = &trail {
            trail.decide(AuditDecision::Allow(verdict.reason.clone()));
        }
        Ok(AuthorizedRead {
            request: read,
            peer: self.identify_peer(identity.peer, &caller),
            permission: Some(Permission {
                expires_at: expiry(&caller),
                caller: caller.into(),
                lease,
            }),
            trail,
        })
    }

    /// [`Self::denied`], before the caller has an entry in the audit log.
    fn unauthenticated(
        &self,
        read: Box<ReadRequest>,
        request: &ClientRequest,
        denial: &CallerDenial,
    ) -> DeniedRead {
        let refusal = &denial.refusal;
        let denied = DenialResponse::of(refusal, request, self.outage());
        let response = self.denial(refusal, &denied, read.status_form);
        if response.is_some() {
            self.record_refusal(request, &read.audit_id, denial, || denied.recorded());
        }
        let trail = match response {
            Some(_) => None,
            None => self.trail(request, &read.audit_id, denial.user.as_ref()),
        };
        DeniedRead {
            request: read,
            trail,
            response,
            ruled: RuledForward::default(),
        }
    }

    /// A read with its [`Self::denial`], which is recorded in the caller's entry of the audit log. A caller without an entry is one that the
    /// audit policy excludes; the refusal may name the user whom it impersonates, to whom another rule of the policy applies.
    fn denied(
        &self,
        read: Box<ReadRequest>,
        trail: Option<AuditTrail>,
        request: &ClientRequest,
        refusal: &CallerRefusal,
    ) -> DeniedRead {
        let denial = DenialResponse::of(refusal, request, self.outage());
        let response = self.denial(refusal, &denial, read.status_form);
        if let Some(trail) = trail.as_ref().filter(|_| response.is_some()) {
            trail.decide(decision(refusal));
            trail.respond(denial.recorded());
        }
        DeniedRead {
            request: read,
            trail,
            response,
            ruled: RuledForward::default(),
        }
    }

    /// The response to a rejected request; `None` if the request has to be forwarded, because only upstream can decide it or write
    /// the response. Upstream then authorizes the caller itself.
    fn denial(
        &self,
        refusal: &CallerRefusal,
        response: &DenialResponse,
        form: Option<StatusForm>,
    ) -> Option<ServiceResponse> {
        if *refusal == CallerRefusal::Forward {
            return None;
        }
        let body = response.to_response(form)?;
        self.metrics.auth_refusals.inc(response.label);
        Some(body.map(AnswerBody::whole))
    }

    /// How long reviews have been failing.
    fn outage(&self) -> Duration {
        let guard = self.guard.as_ref();
        guard.map_or(Duration::ZERO, Guard::review_outage)
    }

    /// The caller of a request that is forwarded without having been authorized here.
    ///
    /// # Errors
    /// The response to a request that is rejected here.
    pub(super) async fn forward_caller(
        &self,
        request: &ClientRequest,
    ) -> Result<ForwardCaller, Box<ServiceResponse>> {
        let identity = &request.connection.identity;
        let Some(guard) = &self.guard else {
            return Ok(ForwardCaller {
                peer: identity.peer,
                forwarding: None,
                permission: None,
                token_user: None,
            });
        };
        let headers = request.http.headers();
        match timeout(LIMIT, guard.forwarding(headers, identity)).await {
            Ok(Ok(forwarding)) => Ok(ForwardCaller {
                peer: self.forwarded_peer(request, &forwarding),
                token_user: match &forwarding {
                    Forwarding::AsCaller => guard.remembered_user(headers).await,
                    Forwarding::Impersonating { .. } => None,
                },
                forwarding: Some(forwarding),
                permission: None,
            }),
            Ok(Err(denial)) => Err(self.forwarding_denial(&denial, request, &audit_id(headers))),
            Err(_) => {
                let audit_id = audit_id(headers);
                if let Some(trail) = self.trail(request, &audit_id, None) {
                    trail.respond(ResponseStatus::of_code(504));
                }
                let response = timeout_response().map(AnswerBody::whole);
                Err(Box::new(with_audit_id(response, &audit_id)))
            }
        }
    }

    /// The peer as the client that its caller is. A caller that impersonates counts as itself.
    pub(super) fn identify_peer(&self, peer: Peer, caller: &Caller) -> Peer {
        let user = caller.authenticated();
        self.users.known(peer, &user.name, &user.groups)
    }

    /// The client of a request that upstream authorizes. The owner of a token is not looked up. Its token is taken out of the
    /// header, so that writing the header differently does not make one client several.
    fn forwarded_peer(&self, request: &ClientRequest, forwarding: &Forwarding) -> Peer {
        let peer = request.connection.identity.peer;
        if let Forwarding::Impersonating { caller, .. } = forwarding {
            return self.identify_peer(peer, caller);
        }
        let headers = request.http.headers();
        let token = match bearer::authorization(headers) {
            TokenHeader::Absent => bearer::websocket(headers),
            found @ (TokenHeader::Invalid | TokenHeader::Token(_)) => found,
        };
        match token {
            TokenHeader::Token(token) => {
                let token = token.authorization().as_bytes();
                self.users.bearing(peer, token)
            }
            TokenHeader::Absent | TokenHeader::Invalid => peer,
        }
    }

    /// The response to a request that is rejected here and that no read has described.
    pub(super) fn forwarding_denial(
        &self,
        denial: &CallerDenial,
        request: &ClientRequest,
        audit_id: &HeaderValue,
    ) -> Box<ServiceResponse> {
        let refusal = &denial.refusal;
        let denied = DenialResponse::of(refusal, request, self.outage());
        self.record_refusal(request, audit_id, denial, || denied.recorded());
        self.written_denial(refusal, &denied, request, audit_id)
    }

    /// [`Self::forwarding_denial`], where the caller is known and has an entry in the audit log unless it is not recorded.
    pub(super) fn authorized_denial(
        &self,
        trail: Option<&AuditTrail>,
        refusal: &CallerRefusal,
        request: &ClientRequest,
        audit_id: &HeaderValue,
    ) -> Box<ServiceResponse> {
        let denial = DenialResponse::of(refusal, request, self.outage());
        if let Some(trail) = trail {
            trail.decide(decision(refusal));
            trail.respond(denial.recorded());
        }
        self.written_denial(refusal, &denial, request, audit_id)
    }

    fn written_denial(
        &self,
        refusal: &CallerRefusal,
        denial: &DenialResponse,
        request: &ClientRequest,
        audit_id: &HeaderValue,
    ) -> Box<ServiceResponse> {
        // Upstream does not write this response, so its formats are replaced by the default one.
        let form = request.info.refusal_form().unwrap_or_default();
        let response = self.denial(refusal, denial, Some(form));
        // The guard does not refuse requests that it leaves to upstream, so this is a fallback.
        let response = response.unwrap_or_else(|| {
            Status::unauthorized()
                .to_response_in(form)
                .map(AnswerBody::whole)
        });
        Box::new(with_audit_id(response, audit_id))
    }
}

/// Whether a caller is refused only because it could not be asked who it is.
const fn is_undecided(refusal: &CallerRefusal) -> bool {
    matches!(
        refusal,
        CallerRefusal::Unverified | CallerRefusal::Busy | CallerRefusal::Failed { .. }
    )
}

/// A read whose time is over before its caller was authorized.
fn timed_out(request: Box<ReadRequest>, trail: Option<AuditTrail>) -> DeniedRead {
    DeniedRead {
        request,
        trail,
        response: Some(timeout_response().map(AnswerBody::whole)),
        ruled: RuledForward::default(),
    }
}

/// The attributes to authorize (docs/PROTOCOL.md §1.1 h, j).
pub(super) fn access(path: &ResourcePath, info: &RequestInfo) -> Access {
    let selector = |name| {
        let value = info
            .query
            .first(name)
            .filter(|_| path.form == PathForm::Plain);
        value.unwrap_or_default().to_owned()
    };
    let Gvr {
        group,
        version,
        resource,
    } = &path.gvr;
    Access::Resource(ResourceAccess {
        verb: info.verb.as_str().to_owned(),
        group: group.to_string(),
        version: version.to_string(),
        resource: resource.to_string(),
        subresource: String::new(),
        namespace: path.namespace.clone().unwrap_or_default(),
        name: info.authorized_name(),
        field_selector: selector("fieldSelector"),
        label_selector: selector("labelSelector"),
    })
}

#[cfg(test)]
mod tests;
