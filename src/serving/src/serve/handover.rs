//! Answers another gateway that takes a cache over (decision 43), or that compares its load (decision 52). The caller needs the right to the
//! path, and for a cache also the rights to list and to watch the whole resource: it gets nothing that a list would not give it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response};
use serde::Serialize;
use tokio::time::timeout;

use super::body::AnswerBody;
use super::client_request::ClientRequest;
use super::record::response_status;
use super::request_timeout::{LIMIT, timeout_response};
use super::resources::ForwardLifetime;
use super::service::{Service, ServiceResponse};
use crate::audit::AuditTrail;
use crate::audit::event::{AuditDecision, ResponseStatus};
use crate::auth::access::{Access, ResourceAccess};
use crate::auth::caller::{Caller, CallerDenial, CallerRefusal, Continuity};
use crate::auth::guard::Guard;
use crate::fairness::Permit;
use crate::protocol::handover::{GatewayLoad, HandoverIndex, HandoverTarget};
use crate::protocol::status::Status;
use crate::protocol::{audit_id, with_audit_id};
use crate::resource::{CacheKey, Gvr};

/// After how many seconds to ask for the load again.
const RETRY_AFTER_SECONDS: u32 = 1;

impl Service {
    /// Answers a request for a handover.
    pub(super) async fn answer_handover(
        &self,
        target: HandoverTarget,
        request: Box<ClientRequest>,
    ) -> ServiceResponse {
        let id = audit_id(request.http.headers());
        let response = timeout(LIMIT, self.handover(&target, &request, &id))
            .await
            .unwrap_or_else(|_| timeout_response().map(AnswerBody::whole));
        with_audit_id(response, &id)
    }

    async fn handover(
        &self,
        target: &HandoverTarget,
        request: &ClientRequest,
        id: &HeaderValue,
    ) -> ServiceResponse {
        // Before anything is asked about the caller: many questions about the load leave what reviews its rights to others.
        let _permit = match self.load_permit(target, request) {
            Ok(permit) => permit,
            Err(busy) => return busy.to_response().map(AnswerBody::whole),
        };
        let trail = match &self.guard {
            None => self.trail(request, id, None),
            Some(guard) => match self.authorize_handover(guard, target, request, id).await {
                Ok(trail) => trail,
                Err(refused) => return *refused,
            },
        };
        let answer = match (request.http.method(), target) {
            (&Method::GET, HandoverTarget::Index) => {
                Ok(json(&HandoverIndex::new(&self.resources.handover_keys())))
            }
            (&Method::GET, HandoverTarget::Load) => self
                .load()
                .map(|load| json(&load))
                .ok_or_else(Status::unknown_resource),
            (&Method::GET, HandoverTarget::Cache(key)) => {
                let handed = self
                    .resources
                    .hand_over(key, request.connection.identity.peer)
                    .await;
                handed.map(|response| {
                    response.map(|body| AnswerBody::Forwarded(body, ForwardLifetime::Short))
                })
            }
            (&Method::GET, HandoverTarget::Unknown) => Err(Status::unknown_resource()),
            _ => Err(Status::method_not_allowed()),
        };
        let status = match &answer {
            Ok(response) => ResponseStatus::of_code(response.status().as_u16()),
            Err(status) => response_status(status),
        };
        if let Some(trail) = trail {
            trail.respond(status);
        }
        answer.unwrap_or_else(|status| status.to_response().map(AnswerBody::whole))
    }

    /// The permit to ask for the load; `None` for what is not about it.
    fn load_permit(
        &self,
        target: &HandoverTarget,
        request: &ClientRequest,
    ) -> Result<Option<Permit>, Status> {
        if *target != HandoverTarget::Load {
            return Ok(None);
        }
        let permit = self
            .load_permits
            .try_acquire(request.connection.identity.peer);
        match permit {
            Some(permit) => Ok(Some(permit)),
            None => Err(Status::too_many_requests(
                "too many gateways compare",
                RETRY_AFTER_SECONDS,
            )),
        }
    }

    /// What other gateways compare with their own load; `None` if this one does not take part.
    fn load(&self) -> Option<GatewayLoad> {
        let watches = self.connections.as_ref()?.watch_count();
        Some(GatewayLoad::new(watches, self.resources.takes_clients()))
    }

    /// Authenticates the caller and checks each of the rights; returns the entry in the audit log.
    async fn authorize_handover(
        &self,
        guard: &Guard,
        target: &HandoverTarget,
        request: &ClientRequest,
        id: &HeaderValue,
    ) -> Result<Option<AuditTrail>, Box<ServiceResponse>> {
        let identity = &request.connection.identity;
        let caller = guard
            .authenticate(request.http.headers(), identity, Continuity::New)
            .await;
        // Nothing here is forwarded, so upstream decides nothing.
        let caller = caller.map_err(|denial| match denial.refusal {
            CallerRefusal::Forward => CallerDenial {
                refusal: CallerRefusal::Unauthorized,
                ..denial
            },
            CallerRefusal::Unauthorized
            | CallerRefusal::Unverified
            | CallerRefusal::Busy
            | CallerRefusal::Forbidden { .. }
            | CallerRefusal::BadRequest { .. }
            | CallerRefusal::Undecided { .. }
            | CallerRefusal::Failed { .. } => denial,
        });
        let caller = caller.map_err(|denial| self.forwarding_denial(&denial, request, id))?;
        let trail = self.caller_trail(request, id, &caller);
        let verb = request.http.method().as_str().to_ascii_lowercase();
        for access in accesses(target, verb) {
            if let Err(refusal) = guard.authorize(&caller, &access, Continuity::New).await {
                let refusal = decided(refusal, &caller, access);
                return Err(self.authorized_denial(trail.as_ref(), &refusal, request, id));
            }
        }
        if let Some(trail) = &trail {
            trail.decide(AuditDecision::Allow(String::new()));
        }
        Ok(trail)
    }
}

/// What a caller must be allowed.
fn accesses(target: &HandoverTarget, verb: String) -> Vec<Access> {
    let mut accesses = vec![Access::Path {
        verb,
        path: target.path(),
    }];
    if let HandoverTarget::Cache(CacheKey { gvr, .. }) = target {
        accesses.extend(["list", "watch"].map(|verb| whole(gvr, verb)));
    }
    accesses
}

/// The access to all objects of a resource.
fn whole(gvr: &Gvr, verb: &str) -> Access {
    Access::Resource(ResourceAccess {
        verb: verb.to_owned(),
        group: gvr.group.to_string(),
        version: gvr.version.to_string(),
        resource: gvr.resource.to_string(),
        ..ResourceAccess::default()
    })
}

/// The refusal where only upstream could still allow the access.
fn decided(refusal: CallerRefusal, caller: &Caller, access: Access) -> CallerRefusal {
    match refusal {
        CallerRefusal::Forward => CallerRefusal::Forbidden {
            user: Arc::clone(&caller.user),
            access: Box::new(access),
            reason: String::new(),
        },
        CallerRefusal::Unauthorized
        | CallerRefusal::Unverified
        | CallerRefusal::Busy
        | CallerRefusal::Forbidden { .. }
        | CallerRefusal::BadRequest { .. }
        | CallerRefusal::Undecided { .. }
        | CallerRefusal::Failed { .. } => refusal,
    }
}

fn json(value: &impl Serialize) -> Response<AnswerBody> {
    let json = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(AnswerBody::whole(Bytes::from(json)));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
