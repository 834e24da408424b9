//! Answers one request, step by step. At each step it can turn out that upstream must answer it.

use std::pin::pin;

use bytes::Buf;
use http::HeaderValue;
use http::header::WARNING;
use tracing::Instrument;

use super::body::AnswerBody;
use super::client_name::read_client;
use super::client_request::ClientRequest;
use super::permission::DeniedRead;
use super::read::{ReadFailure, ReadOutcome};
use super::read_request::ReadRequest;
use super::read_state::ReadRefusal;
use super::record::response_status;
use super::request_timeout::{before_deadline, timeout_response};
use super::resources::{ForwardCaller, ForwardRequest, ForwardRule, RequestOutcome};
use super::response::switched;
use super::service::{Service, ServiceResponse};
use super::side::{ReadSide, user_of};
use super::unhandled::unhandled;
use crate::audit::AuditTrail;
use crate::audit::event::ResponseStatus;
use crate::auth::impersonation::impersonates;
use crate::metrics::BadRequest;
use crate::protocol::handover::HandoverTarget;
use crate::protocol::relay::relay_node;
use crate::protocol::request::{ResourcePath, Verb};
use crate::protocol::status::Status;
use crate::protocol::{AUDIT_ID, with_audit_id};
use crate::resource::{CacheKey, LOOP_HEADER};
use crate::serving_control::{SideHold, SubjectUser};
use crate::talkers::TalkKind;
use crate::telemetry::{record_outcome, request_span};
use crate::watch::WatchClient;

/// Maximum length of the names of objects and namespaces, in bytes.
const NAME_LEN_MAX: usize = 253;

/// What is needed to count and record a read, and the headers of any response to it.
struct ReadAccount<'a> {
    request: &'a ReadRequest,
    trail: Option<&'a AuditTrail>,
    key: &'a CacheKey,
    warnings: &'a [HeaderValue],
}

impl ReadAccount<'_> {
    /// Records the response, unless one is recorded already.
    fn respond(&self, status: impl FnOnce() -> ResponseStatus) {
        if let Some(trail) = self.trail {
            trail.respond(status());
        }
    }
}

impl Service {
    /// Answers one request. Never fails: an error is a response, too.
    pub async fn answer(&self, request: Box<ClientRequest>) -> ServiceResponse {
        let info = &request.info;
        let span = request_span(
            info.verb.as_str(),
            || match info.resource() {
                Some(path) => path.gvr.to_string(),
                None => String::new(),
            },
            request.http.headers(),
        );
        let response = self.answer_in_span(request).instrument(span.clone()).await;
        record_outcome(&span, response.status());
        response
    }

    async fn answer_in_span(&self, request: Box<ClientRequest>) -> ServiceResponse {
        if let Some(response) = unhandled(&request.http) {
            self.count_bad_request(BadRequest::Http);
            return response.map(AnswerBody::whole);
        }
        if let Some(node) = relay_node(request.http.method(), request.http.uri()) {
            return self.answer_relay(node);
        }
        let (uri, headers) = (request.http.uri(), request.http.headers());
        if self.resources.has_passed(uri, headers) {
            self.count_bad_request(BadRequest::Loop);
            let mut response = Status::loop_detected().to_response();
            let header = HeaderValue::from_static("detected");
            response.headers_mut().insert(LOOP_HEADER, header);
            return response.map(AnswerBody::whole);
        }
        // Without a guard nobody here checks whether the caller may impersonate, so upstream must.
        let is_guarded = self.guard.is_some();
        if !is_guarded && impersonates(request.http.headers()) {
            return self.forward_unread(request).await;
        }
        if let Some(target) = HandoverTarget::parse(request.http.uri().path()) {
            return self.answer_handover(target, request).await;
        }
        match ReadRequest::of(&request, self.resources.gates()) {
            Some(read) if !is_guarded || self.may_answer(&read) => {
                match self.side(&read, &request, self.unknown_user()) {
                    ReadSide::Memory => self.answer_read(read, request, false).await,
                    ReadSide::User => self.answer_read(read, request, true).await,
                    ReadSide::Upstream(ruled) => {
                        self.forward_ruled(&read, request, ruled, |request, caller| {
                            self.forward_trail(request, caller)
                        })
                        .await
                    }
                }
            }
            Some(_) | None => self.forward_unread(request).await,
        }
    }

    /// Whether memory may answer this request at all, as far as a cheap check can say. Other requests are forwarded without a
    /// review of the caller: reviews of requests of unbounded length are not sent upstream.
    pub(super) fn may_answer(&self, read: &ReadRequest) -> bool {
        let ResourcePath {
            gvr,
            namespace,
            name,
            ..
        } = &read.path;
        self.resources.may_serve(gvr)
            && [namespace, name]
                .into_iter()
                .flatten()
                .all(|text| text.len() <= NAME_LEN_MAX)
    }

    /// `has_open_rules` says whether the serving rules wait for the user to be known.
    async fn answer_read(
        &self,
        read: Box<ReadRequest>,
        request: Box<ClientRequest>,
        has_open_rules: bool,
    ) -> ServiceResponse {
        // Authorize before a cache is started, a view is joined or anything is waited for.
        let read = match self.authorize(read, &request, has_open_rules).await {
            Ok(read) => read,
            Err(denied) => return self.answer_denied(denied, request).await,
        };
        let ReadOutcome {
            key,
            warnings,
            result,
        } = self.read(&read, &request.info).await;
        let account = ReadAccount {
            request: &read.request,
            trail: read.trail.as_ref(),
            key: &key,
            warnings: &warnings,
        };
        let permit = match result {
            Ok(mut response) => {
                if let Some(recall) = &request.connection.recall {
                    response.body_mut().follow(recall);
                }
                let caller = read
                    .permission
                    .as_ref()
                    .map(|permission| &*permission.caller);
                let address = request.connection.address;
                let client = read_client(request.http.headers(), address, caller);
                self.count_talk(&client, read.request.verb, response.body_mut());
                if let AnswerBody::Watch(watch) = response.body_mut()
                    && let Some(table) = self.resources.watch_table(&key)
                {
                    watch.enter(&table, client);
                    if let Some(serving) = &self.serving {
                        let caller = read
                            .permission
                            .as_ref()
                            .map(|permission| &permission.caller);
                        let user = caller.map_or(SubjectUser::Nobody, |caller| user_of(caller));
                        watch.follow_side(SideHold::new(serving.control.clone(), user));
                    }
                }
                return self.answer_from_memory(&account, response);
            }
            Err(ReadFailure::TimedOut) => return self.timed_out(&account),
            Err(ReadFailure::Refused(ReadRefusal::Forward)) => None,
            Err(ReadFailure::Refused(ReadRefusal::Answer(status))) => {
                // Only upstream writes some of the forms that a client may accept.
                match account.request.status_form {
                    Some(form) => {
                        account.respond(|| response_status(&status));
                        let response = status.to_response_in(form).map(AnswerBody::whole);
                        return self.finished(&account, response);
                    }
                    None => None,
                }
            }
            Err(ReadFailure::Permitted(permit)) => Some(permit),
        };
        let forwarded = self.send_upstream(ForwardRequest {
            caller: read.forward_caller(),
            trail: read.trail.clone(),
            request,
            permit,
            rule: None,
        });
        let forwarded = before_deadline(read.request.deadline, pin!(forwarded)).await;
        self.answer_forwarded(&account, forwarded)
    }

    async fn answer_denied(
        &self,
        denied: DeniedRead,
        request: Box<ClientRequest>,
    ) -> ServiceResponse {
        let key = CacheKey::json(&denied.request.path.gvr);
        let account = ReadAccount {
            request: &denied.request,
            trail: denied.trail.as_ref(),
            key: &key,
            warnings: &[],
        };
        if let Some(response) = denied.response {
            return self.finished(&account, response);
        }
        let trail = denied.trail.clone();
        let forwarded = self.forward_ruled(&denied.request, request, denied.ruled, |_, _| trail);
        let forwarded = before_deadline(denied.request.deadline, pin!(forwarded)).await;
        self.answer_forwarded(&account, forwarded)
    }

    fn answer_from_memory(
        &self,
        account: &ReadAccount<'_>,
        mut response: ServiceResponse,
    ) -> ServiceResponse {
        if let Some(trail) = account.trail {
            response.body_mut().hold(trail);
        }
        match &account.request.socket {
            None => self.finished(account, response),
            // Like the API server's, WebSocket responses have only their own headers.
            Some(upgrade) => {
                let response = switched(response, upgrade);
                self.count(account, &response);
                account.respond(|| ResponseStatus::of_code(response.status().as_u16()));
                response
            }
        }
    }

    /// The response to a read that was forwarded; `response` is `None` if upstream did not answer before the deadline.
    fn answer_forwarded(
        &self,
        account: &ReadAccount<'_>,
        response: Option<ServiceResponse>,
    ) -> ServiceResponse {
        let Some(response) = response else {
            return self.timed_out(account);
        };
        self.count(account, &response);
        match account.trail {
            // A watch of Tables that clients share: the gateway answers it itself.
            Some(trail) if trail.is_answered() => {
                with_audit_id(response, &account.request.audit_id)
            }
            // Upstream records the request.
            Some(trail) => {
                trail.forget();
                response
            }
            None => response,
        }
    }

    fn timed_out(&self, account: &ReadAccount<'_>) -> ServiceResponse {
        self.finished(account, timeout_response().map(AnswerBody::whole))
    }

    fn finished(
        &self,
        account: &ReadAccount<'_>,
        mut response: ServiceResponse,
    ) -> ServiceResponse {
        self.count(account, &response);
        account.respond(|| ResponseStatus::of_code(response.status().as_u16()));
        for warning in account.warnings {
            response.headers_mut().append(WARNING, warning.clone());
        }
        with_audit_id(response, &account.request.audit_id)
    }

    /// Counts a request that memory answers for its client. The table of open watches counts what is sent to a watch.
    fn count_talk(&self, client: &WatchClient, verb: Verb, body: &mut AnswerBody) {
        let Some(talkers) = self.resources.talkers() else {
            return;
        };
        let kind = match verb == Verb::List {
            true => TalkKind::List,
            false => TalkKind::Other,
        };
        let mut talk = talkers.begin(client.talker(), kind);
        match body {
            AnswerBody::Whole(bytes) | AnswerBody::Stream(bytes) => {
                talk.sent(bytes.as_ref().map_or(0, Buf::remaining));
            }
            AnswerBody::List(list) => list.talk = Some(talk),
            AnswerBody::Watch(_) | AnswerBody::Forwarded(..) => {}
        }
    }

    fn count(&self, account: &ReadAccount<'_>, response: &ServiceResponse) {
        self.resources.answered(RequestOutcome {
            key: account.key,
            verb: account.request.verb,
            code: response.status().as_u16(),
        });
    }

    /// Forwards a request that cannot be answered from memory.
    async fn forward_unread(&self, request: Box<ClientRequest>) -> ServiceResponse {
        self.forward(request, None, |request, caller| {
            self.forward_trail(request, caller)
        })
        .await
    }

    /// Forwards a request that is not authorized here. `trail` gives its entry in the audit log, and `rule` is the serving rule that
    /// forwards it.
    pub(super) async fn forward(
        &self,
        request: Box<ClientRequest>,
        rule: Option<ForwardRule>,
        trail: impl FnOnce(&ClientRequest, &ForwardCaller) -> Option<AuditTrail>,
    ) -> ServiceResponse {
        match self.forward_caller(&request).await {
            Ok(caller) => {
                let trail = trail(&request, &caller);
                let forward = ForwardRequest {
                    request,
                    caller,
                    permit: None,
                    trail,
                    rule,
                };
                self.send_upstream(forward).await
            }
            Err(refused) => *refused,
        }
    }

    async fn send_upstream(&self, mut request: ForwardRequest) -> ServiceResponse {
        if let Some(trail) = &request.trail {
            // Upstream's events get the same id.
            let headers = request.request.http.headers_mut();
            let is_absent = headers.get(AUDIT_ID).is_none_or(HeaderValue::is_empty);
            if is_absent && let Ok(id) = HeaderValue::try_from(trail.audit_id()) {
                headers.insert(AUDIT_ID, id);
            }
        }
        let response = self.resources.forward(request).await;
        let lifetime = response.extensions().get().copied().unwrap_or_default();
        response.map(|body| AnswerBody::Forwarded(body, lifetime))
    }
}
