//! Authenticates and authorizes callers. Decides nothing itself: it asks the guard, and writes refusals as the API server does.

use http::header::{HeaderMap, X_CONTENT_TYPE_OPTIONS};
use http::{Extensions, HeaderValue, Request, Uri};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::read_request::prefers_indented;
use super::record::{decision, response_status};
use super::request_timeout::{LIMIT, timeout_response};
use super::{AnswerBody, ReadRequest, Service, ServiceResponse};
use crate::audit::event::{AuditDecision, ResponseStatus};
use crate::auth::access::{Access, ResourceAccess};
use crate::auth::bearer::{self, TokenHeader};
use crate::auth::caller::{Caller, CallerRefusal, PeerIdentity};
use crate::auth::guard::{Authorization, Forwarding};
use crate::fairness::Peer;
use crate::metrics::AuthRefusal;
use crate::protocol::request::{Accept, PathForm, Query, ResourcePath, Verb, authorized_name};
use crate::protocol::status::{ForbiddenAccess, PlainText, Status, StatusForm};
use crate::protocol::{audit_id, with_audit_id};
use crate::resource::Gvr;
use crate::serve::resources::{Permission, Resources, expiry};

impl<R: Resources> Service<R> {
    /// Authenticates the caller and authorizes the request; `None` if callers are not authenticated.
    pub(super) async fn permission(
        &self,
        read: &mut ReadRequest,
        request: &Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> Result<Option<Permission>, CallerRefusal> {
        let Some(guard) = &self.guard else {
            read.trail = self.trail(request, audit_id, None);
            return Ok(None);
        };
        let access = access(&read.path, read.verb, request.uri());
        let (headers, peer) = (request.headers(), peer_identity(request.extensions()));
        let caller = guard.authenticate(headers, &peer).await?;
        read.trail = self.caller_trail(request, audit_id, &caller);
        let Authorization { lease, verdict } = guard.authorize(&caller, &access).await?;
        read.decide(|| AuditDecision::Allow(verdict.reason.clone()));
        Ok(Some(Permission {
            expires_at: expiry(&caller),
            caller: caller.into(),
            lease,
        }))
    }

    /// The [`Self::denial`] of a list or watch, recorded in the audit log.
    pub(super) fn denied(
        &self,
        read: &ReadRequest,
        request: &Request<Incoming>,
        (refusal, audit_id): (&CallerRefusal, &HeaderValue),
    ) -> Option<ServiceResponse<R>> {
        let response = self.denial(refusal, request.uri(), read.status_form)?;
        if read.trail.is_some() {
            read.decide(|| decision(refusal));
            read.respond(|| recorded(refusal));
        } else if self.audit.is_some() {
            self.record_refusal(request, audit_id, (refusal, recorded(refusal)));
        }
        Some(response)
    }

    /// The response to a rejected request; `None` if the request has to be forwarded, because only upstream can decide it or write
    /// the response. Upstream then authorizes the caller itself.
    pub(super) fn denial(
        &self,
        refusal: &CallerRefusal,
        uri: &Uri,
        form: Option<StatusForm>,
    ) -> Option<ServiceResponse<R>> {
        let (label, response) = match refusal {
            CallerRefusal::Forward => return None,
            CallerRefusal::Unauthorized => {
                let response = Status::unauthorized().to_response_in(form?);
                (AuthRefusal::Unauthorized, response)
            }
            CallerRefusal::Forbidden {
                user,
                access,
                reason,
            } => {
                let response = forbidden(&user.name, access, reason).to_response_in(form?);
                (AuthRefusal::Forbidden, response)
            }
            CallerRefusal::BadRequest { message } => {
                let mut response = Status::bad_request(message.as_str()).to_response_in(form?);
                let headers = response.headers_mut();
                headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                (AuthRefusal::Failed, response)
            }
            CallerRefusal::Failed { message } => {
                let target = uri.path_and_query().map_or("/", |target| target.as_str());
                let response = PlainText::authorizer_failed(target, message).to_response();
                (AuthRefusal::Failed, response)
            }
        };
        if let Some(metrics) = self.resources.listener_metrics() {
            metrics.auth_refusals.inc(label);
        }
        Some(response.map(AnswerBody::whole))
    }

    /// Determines how a request is forwarded, and adds that to the request as an extension. Does nothing if callers are not
    /// authenticated.
    ///
    /// # Errors
    /// The response to a request that is rejected here.
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
                    Ok(Err(refusal)) => return Err(self.forwarding_denial(&refusal, request)),
                    Err(_) => return Err(finished(timeout_response(), request.headers())),
                }
            }
        };
        request.extensions_mut().insert(forwarding);
        Ok(())
    }

    /// The peer as the client that its caller is. A caller that impersonates counts as itself.
    pub(super) fn identify_peer(&self, peer: Peer, caller: &Caller) -> Peer {
        let user = caller.authenticated();
        self.users.known(peer, &user.name, &user.groups)
    }

    /// The client of a request that upstream authorizes. The owner of a token is not looked up. Its token is taken out of the
    /// header, so that writing the header differently does not make one client several.
    fn forwarded_peer(&self, request: &Request<Incoming>, forwarding: &Forwarding) -> Peer {
        let peer = request.extensions().get().copied();
        let peer = peer.unwrap_or(Peer::UNKNOWN);
        if let Forwarding::Impersonating { caller, .. } = forwarding {
            return self.identify_peer(peer, caller);
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

    fn forwarding_denial(
        &self,
        refusal: &CallerRefusal,
        request: &Request<Incoming>,
    ) -> Box<ServiceResponse<R>> {
        let form = match Accept::of(request.headers()).refusal_form() {
            Some(StatusForm::Json) if prefers_indented(request) => StatusForm::Indented,
            // There is no upstream to write the response here, so use the default format.
            form => form.unwrap_or_default(),
        };
        let response = self.denial(refusal, request.uri(), Some(form));
        // The guard does not refuse requests that it leaves to upstream, so this is a fallback.
        let response = response.unwrap_or_else(|| {
            let status = Status::unauthorized().to_response_in(form);
            status.map(AnswerBody::whole)
        });
        let audit_id = audit_id(request.headers());
        if self.audit.is_some() {
            self.record_refusal(request, &audit_id, (refusal, recorded(refusal)));
        }
        Box::new(with_audit_id(response, &audit_id))
    }
}

fn finished<F>(
    response: http::Response<bytes::Bytes>,
    headers: &HeaderMap,
) -> Box<http::Response<AnswerBody<F>>> {
    Box::new(with_audit_id(
        response.map(AnswerBody::whole),
        &audit_id(headers),
    ))
}

/// The identity of the client that the connection has established.
fn peer_identity(extensions: &Extensions) -> PeerIdentity {
    extensions.get().cloned().unwrap_or_default()
}

/// The attributes to authorize (docs/PROTOCOL.md §1.1 h, j).
fn access(path: &ResourcePath, verb: Verb, uri: &Uri) -> Access {
    let query = Query::parse(uri.query());
    let selector = |name| {
        let value = query.first(name).filter(|_| path.form == PathForm::Plain);
        value.unwrap_or_default().to_owned()
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

/// The response status of a refusal in the audit log.
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
        // The response is plain text and has no Status.
        CallerRefusal::Failed { .. } => ResponseStatus::of_code(500),
    }
}

/// The API server's Status for a denied access.
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
