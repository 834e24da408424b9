//! Who is calling, and what they may do. Decides nothing itself: it asks the guard, and writes refusals as the API server does.

use http::header::{HeaderMap, X_CONTENT_TYPE_OPTIONS};
use http::{Extensions, HeaderValue, Request, Uri};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::read_request::prefers_indented;
use super::record::{decision, response_status};
use super::request_timeout::{LIMIT, overdue};
use super::{AnswerBody, ReadRequest, Service, ServiceResponse, accept};
use crate::audit::event::{AuditDecision, ResponseStatus};
use crate::auth::access::{Access, ResourceAccess};
use crate::auth::bearer::{self, TokenHeader};
use crate::auth::caller::{Caller, CallerRefusal, PeerIdentity};
use crate::auth::guard::{Authorization, Forwarding};
use crate::fairness::Peer;
use crate::metrics::AuthRefusal;
use crate::protocol::request::{
    PathForm, Query, ResourcePath, Verb, authorized_name, refusal_form,
};
use crate::protocol::status::{ForbiddenAccess, PlainText, Status, StatusForm};
use crate::protocol::{audit_id, with_audit_id};
use crate::resource::Gvr;
use crate::serve::resources::{Permission, Resources, expiry};

impl<R: Resources> Service<R> {
    /// Authenticates the caller and authorizes what it asks for; `None` where callers are not told apart.
    pub(super) async fn permission(
        &self,
        asked: &mut ReadRequest,
        request: &Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> Result<Option<Permission>, CallerRefusal> {
        let Some(guard) = &self.guard else {
            asked.trail = self.trail(request, audit_id, None);
            return Ok(None);
        };
        let access = access(&asked.path, asked.verb, request.uri());
        let (headers, peer) = (request.headers(), peer_identity(request.extensions()));
        let caller = guard.authenticate(headers, &peer).await?;
        asked.trail = self.trail_of(request, audit_id, &caller);
        let Authorization { lease, verdict } = guard.authorize(&caller, &access).await?;
        asked.decide(|| AuditDecision::Allow(verdict.reason.clone()));
        Ok(Some(Permission {
            expires_at: expiry(&caller),
            caller: caller.into(),
            lease,
        }))
    }

    /// [`Self::denial`] of a list or a watch, recorded.
    pub(super) fn denied(
        &self,
        asked: &ReadRequest,
        request: &Request<Incoming>,
        (refusal, audit_id): (&CallerRefusal, &HeaderValue),
    ) -> Option<ServiceResponse<R>> {
        let answer = self.denial(refusal, request.uri(), asked.status_form)?;
        if asked.trail.is_some() {
            asked.decide(|| decision(refusal));
            asked.respond(|| recorded(refusal));
        } else if self.audit.is_some() {
            self.record_refusal(request, audit_id, (refusal, recorded(refusal)));
        }
        Some(answer)
    }

    /// The answer to a request that is refused; `None` if upstream has it, or the words for it. Whatever upstream answers, it
    /// judges the caller itself.
    pub(super) fn denial(
        &self,
        refusal: &CallerRefusal,
        uri: &Uri,
        form: Option<StatusForm>,
    ) -> Option<ServiceResponse<R>> {
        let (label, answer) = match refusal {
            CallerRefusal::Forward => return None,
            CallerRefusal::Unauthorized => {
                let answer = Status::unauthorized().to_response_in(form?);
                (AuthRefusal::Unauthorized, answer)
            }
            CallerRefusal::Forbidden {
                user,
                access,
                reason,
            } => {
                let answer = forbidden(&user.name, access, reason).to_response_in(form?);
                (AuthRefusal::Forbidden, answer)
            }
            CallerRefusal::BadRequest { message } => {
                let mut answer = Status::bad_request(message.as_str()).to_response_in(form?);
                let headers = answer.headers_mut();
                headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                (AuthRefusal::Failed, answer)
            }
            CallerRefusal::Failed { message } => {
                let target = uri.path_and_query().map_or("/", |target| target.as_str());
                let answer = PlainText::authorizer_failed(target, message).to_response();
                (AuthRefusal::Failed, answer)
            }
        };
        if let Some(metrics) = self.resources.listener_metrics() {
            metrics.auth_refusals.inc(label);
        }
        Some(answer.map(AnswerBody::whole))
    }

    /// Notes how a request travels upstream, where callers are told apart.
    ///
    /// # Errors
    /// The answer to a request that is refused here.
    pub(super) async fn set_forwarding(
        &self,
        request: &mut Request<Incoming>,
    ) -> Result<(), Box<ServiceResponse<R>>> {
        let Some(guard) = &self.guard else {
            return Ok(());
        };
        let forwarding = match request.extensions().get::<Permission>() {
            Some(permission) => permission.forwarding(),
            None => {
                let (headers, peer) = (request.headers(), peer_identity(request.extensions()));
                match timeout(LIMIT, guard.forwarding(headers, &peer)).await {
                    Ok(Ok(forwarding)) => {
                        let peer = self.forwarded_peer(request, &forwarding);
                        request.extensions_mut().insert(peer);
                        forwarding
                    }
                    Ok(Err(refusal)) => return Err(self.unforwarded(&refusal, request)),
                    Err(_) => return Err(finished(overdue(), request.headers())),
                }
            }
        };
        request.extensions_mut().insert(forwarding);
        Ok(())
    }

    /// The peer, now that its caller is known. Whoever impersonates counts as itself.
    pub(super) fn known(&self, peer: Peer, caller: &Caller) -> Peer {
        let user = caller.authenticated();
        self.users.known(peer, &user.name, &user.groups)
    }

    /// The same for a request that upstream judges. Whose a token is, is not asked; it is taken out of its header, so that
    /// nobody is several clients by writing the header in several ways.
    fn forwarded_peer(&self, request: &Request<Incoming>, forwarding: &Forwarding) -> Peer {
        let peer = request.extensions().get().copied();
        let peer = peer.unwrap_or(Peer::UNKNOWN);
        if let Forwarding::Impersonating { caller, .. } = forwarding {
            return self.known(peer, caller);
        }
        let token = match bearer::authorization(request.headers()) {
            TokenHeader::Absent => bearer::websocket(request.headers()),
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

    fn unforwarded(
        &self,
        refusal: &CallerRefusal,
        request: &Request<Incoming>,
    ) -> Box<ServiceResponse<R>> {
        let form = match refusal_form(&accept(request)) {
            Some(StatusForm::Json) if prefers_indented(request) => StatusForm::Indented,
            // Nobody else can write it.
            form => form.unwrap_or_default(),
        };
        let answer = self.denial(refusal, request.uri(), Some(form));
        // A guard that leaves a request to upstream says so by how it travels.
        let answer = answer.unwrap_or_else(|| {
            let status = Status::unauthorized().to_response_in(form);
            status.map(AnswerBody::whole)
        });
        let audit_id = audit_id(request.headers());
        if self.audit.is_some() {
            self.record_refusal(request, &audit_id, (refusal, recorded(refusal)));
        }
        Box::new(with_audit_id(answer, &audit_id))
    }
}

fn finished<F>(
    answer: http::Response<bytes::Bytes>,
    headers: &HeaderMap,
) -> Box<http::Response<AnswerBody<F>>> {
    Box::new(with_audit_id(
        answer.map(AnswerBody::whole),
        &audit_id(headers),
    ))
}

/// What the connection says about its client.
fn peer_identity(extensions: &Extensions) -> PeerIdentity {
    extensions.get().cloned().unwrap_or_default()
}

/// What is asked of authorization (docs/PROTOCOL.md §1.1 h, j).
fn access(path: &ResourcePath, verb: Verb, uri: &Uri) -> Access {
    let query = Query::parse(uri.query());
    let selector = |name| {
        let given = query.first(name).filter(|_| path.form == PathForm::Plain);
        given.unwrap_or_default().to_owned()
    };
    let Gvr {
        group,
        version,
        resource,
    } = &path.gvr;
    Access::Resource(ResourceAccess {
        verb: verb.as_str().to_owned(),
        group: group.to_string(),
        version: version.to_string(),
        resource: resource.to_string(),
        subresource: String::new(),
        namespace: path.namespace.clone().unwrap_or_default(),
        name: authorized_name(path, verb, &query).unwrap_or_default(),
        field_selector: selector("fieldSelector"),
        label_selector: selector("labelSelector"),
    })
}

/// A refusal as the audit log has it.
fn recorded(refusal: &CallerRefusal) -> ResponseStatus {
    match refusal {
        CallerRefusal::Unauthorized | CallerRefusal::Forward => {
            response_status(&Status::unauthorized())
        }
        CallerRefusal::Forbidden {
            user,
            access,
            reason,
        } => response_status(&forbidden(&user.name, access, reason)),
        CallerRefusal::BadRequest { message } => {
            response_status(&Status::bad_request(message.as_str()))
        }
        // Plain text, no Status.
        CallerRefusal::Failed { .. } => ResponseStatus::of_code(500),
    }
}

/// The server's words for what a user may not do.
fn forbidden(user: &str, access: &Access, reason: &str) -> Status {
    match access {
        Access::Path { verb, path } => Status::forbidden_path(user, verb, path, reason),
        Access::Resource(access) => Status::forbidden(&ForbiddenAccess {
            user,
            verb: &access.verb,
            resource: &Gvr::new(&access.group, &access.version, &access.resource),
            subresource: &access.subresource,
            namespace: &access.namespace,
            name: &access.name,
            reason,
        }),
    }
}

#[cfg(test)]
mod tests;
