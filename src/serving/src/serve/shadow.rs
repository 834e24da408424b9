//! Forwards what a serving rule forwards, and where the rule wants it, compares upstream's answer with what memory would have answered
//! (decision 63). The comparison is a task beside the request: the client gets upstream's bytes as they come, whatever becomes of it.
//!
//! `memory` asks memory, `list` and `watch` compare.

mod list;
mod memory;
mod watch;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response};

use super::body::AnswerBody;
use super::client_request::ClientRequest;
use super::negotiation::Negotiation;
use super::read_request::ReadRequest;
use super::resources::{ForwardCaller, ForwardRule, ForwardedBody};
use super::service::{RuledReads, Service, ServiceResponse};
use super::side::RuledForward;
use crate::audit::AuditTrail;
use crate::metrics::VerbLabel;
use crate::protocol::request::Verb;
use crate::resource::Encoding;
use crate::serving_control::OwnedSubject;
use crate::shadow::{Difference, ShadowTee};
use memory::{CompareStop, MEMORY_SHORT, ShadowRead};

impl Service {
    /// Forwards a read because a rule says so, and has the answer compared if the rule says that, too.
    pub(super) async fn forward_ruled(
        &self,
        read: &ReadRequest,
        request: Box<ClientRequest>,
        ruled: RuledForward,
        trail: impl FnOnce(&ClientRequest, &ForwardCaller) -> Option<AuditTrail>,
    ) -> ServiceResponse {
        let shadowed = ruled
            .shadowed
            .and_then(|subject| self.begin_shadow(read, &request, subject));
        let rule = ForwardRule { end: ruled.end };
        let response = self.forward(request, Some(rule), trail).await;
        match shadowed {
            Some(shadowed) => attach(shadowed, response),
            None => response,
        }
    }

    /// What a comparison needs of a request; `None` if it is not compared.
    fn begin_shadow(
        &self,
        read: &ReadRequest,
        request: &ClientRequest,
        subject: OwnedSubject,
    ) -> Option<ShadowRead> {
        let RuledReads { control, shadow } = self.serving.as_deref()?;
        // What memory never answers is forwarded with any rules. Nor is it a resource that could be counted.
        if !self.may_answer(read) {
            return None;
        }
        let verb = match read.verb == Verb::List {
            true => VerbLabel::List,
            false => VerbLabel::Watch,
        };
        let recorder = shadow.recorder(&read.path.gvr, verb);
        let is_read = Negotiation::of(&request.info, self.resources.gates())
            .first_choice()
            .is_some()
            && read.socket.is_none();
        let identity = &request.connection.identity;
        let is_short = self.admission.is_memory_short();
        let permit = (is_read && !is_short)
            .then(|| shadow.permit(verb, identity.peer))
            .flatten();
        let Some(permit) = permit else {
            recorder.not_comparable(match is_read {
                true if is_short => MEMORY_SHORT,
                true => "too many comparisons",
                false => "memory does not write this form",
            });
            return None;
        };
        Some(ShadowRead {
            service: self.comparing(shadow),
            shadow: shadow.clone(),
            clients: self.admission.clone(),
            control: control.clone(),
            subject,
            read: read.compared_at(None),
            info: request.info.clone(),
            headers: request.http.headers().clone(),
            identity: identity.clone(),
            recorder,
            _permit: permit,
        })
    }
}

/// Upstream's answer without its body.
struct ForwardedHead {
    code: u16,
    /// `None` if it is no encoding that can be read.
    encoding: Option<Encoding>,
    is_gzip: bool,
}

impl ForwardedHead {
    fn of<B>(response: &Response<B>) -> Self {
        let headers = response.headers();
        let compression = headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes);
        let is_gzip = compression == Some(b"gzip");
        Self {
            code: response.status().as_u16(),
            encoding: encoding(headers).filter(|_| is_gzip || compression.is_none()),
            is_gzip,
        }
    }
}

fn encoding(headers: &HeaderMap) -> Option<Encoding> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    [Encoding::Json, Encoding::Protobuf]
        .into_iter()
        .find(|encoding| encoding.media_type() == media_type)
}

/// Passes the answer on, and begins the comparison.
fn attach(shadowed: ShadowRead, response: ServiceResponse) -> ServiceResponse {
    let head = ForwardedHead::of(&response);
    let (parts, body) = response.into_parts();
    let AnswerBody::Forwarded(body, lifetime) = body else {
        shadowed.recorder.not_comparable("the gateway refused it");
        return Response::from_parts(parts, body);
    };
    let (body, items) = ShadowTee::new(body, shadowed.shadow.budget().clone());
    let shadow = shadowed.shadow.clone();
    shadow.spawn(async move {
        let comparing = async {
            match shadowed.read.verb == Verb::List {
                true => shadowed.compare_list(&head, items).await,
                false => shadowed.compare_watch(&head, items).await,
            }
        };
        // What is not compared to its end is not counted: nothing is wrong with it.
        let compared = tokio::select! {
            compared = comparing => compared,
            () = shadowed.unwanted() => Ok(()),
        };
        match compared {
            Ok(()) => {}
            Err(CompareStop::NotComparable(reason)) => shadowed.recorder.not_comparable(reason),
            Err(CompareStop::Differs(outcome)) => {
                shadowed.recorder.differs(&Difference::of_answer(outcome));
            }
        }
    });
    let body = AnswerBody::Forwarded(ForwardedBody::new(body), lifetime);
    Response::from_parts(parts, body)
}
