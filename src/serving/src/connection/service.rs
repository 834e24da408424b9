//! Adapts the [`Service`] to hyper: parses the head of each request and adds what the connection knows, and passes each response to
//! hyper or to the hijack slot.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;

use super::adoption::StreamAdopter;
use super::body::ClientBody;
use super::go_away::GoAway;
use super::head::chunked_ok;
use super::hijack::{HijackSlot, Hijacked};
use super::websocket::Socket;
use crate::auth::caller::PeerIdentity;
use crate::fairness::Shortage;
use crate::metrics::{BadRequest, LimitLabel, PermitKind};
use crate::protocol::status::{PlainText, Status};
use crate::protocol::websocket::Framing;
use crate::protocol::{audit_id, with_audit_id};
use crate::serve::resources::ForwardLifetime;
use crate::serve::{AnswerBody, ClientRequest, ConnectInfo, Service};
use crate::transport::Traffic;
use crate::transport::abort_limit::{AbortLimit, InFlightRequest};
use crate::watch::WatchRecall;

/// Header fields of a request. Impersonation sends one field for each of the user's groups.
pub(super) const HEADERS_MAX: usize = 512;

/// Whether a connection is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptDecision {
    Served,
    /// There are too many connections: each request gets 429.
    Refused(Shortage),
}

/// The service that hyper calls. Its futures are boxed: they are large, and live as long as a forwarded request.
pub(super) struct HyperService {
    pub(super) service: Service,
    pub(super) abort_limit: AbortLimit,
    /// Only for HTTP/1.1: a request can take the connection over.
    pub(super) hijack: Option<HijackSlot>,
    /// Only for HTTP/2.
    pub(super) adopter: Option<StreamAdopter>,
    /// Only for HTTP/1.1: the connection can become a tunnel.
    pub(super) traffic: Option<Traffic>,
    pub(super) address: IpAddr,
    pub(super) identity: PeerIdentity,
    pub(super) decision: AcceptDecision,
    pub(super) go_away: GoAway,
    pub(super) recall: Option<WatchRecall>,
}

type ClientResponse = Response<ClientBody>;

impl hyper::service::Service<Request<Incoming>> for HyperService {
    type Response = ClientResponse;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<ClientResponse, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        if let AcceptDecision::Refused(shortage) = self.decision {
            let answer = self.refused(&request, shortage);
            return Box::pin(std::future::ready(Ok(answer)));
        }
        let request_in_flight = match self.begin(&request) {
            Ok(request_in_flight) => request_in_flight,
            Err(refusal) => return Box::pin(std::future::ready(Ok(*refusal))),
        };
        let upgrade = request.extensions().get::<OnUpgrade>().cloned();
        let upgrade = self.hijack.clone().zip(upgrade);
        let hijack = self.hijack.clone().filter(|_| can_be_hijacked(&request));
        let service = self.service.clone();
        let (version, traffic) = (request.version(), self.traffic.clone());
        let (go_away, adopter) = (self.go_away.clone(), self.adopter.clone());
        let connection = ConnectInfo {
            identity: self.identity.clone(),
            address: self.address,
            can_upgrade: upgrade.is_some(),
            recall: self.recall.clone(),
        };
        let request = ClientRequest::new(request, connection);
        Box::pin(async move {
            if service.sends_away(version) {
                go_away.begin();
            }
            let mut answer = service.answer(request).await;
            if go_away.is_begun() {
                announce_close(&mut answer, version);
            }
            let in_flight = request_in_flight.answered();
            if let (Some(traffic), AnswerBody::Forwarded(_, lifetime)) = (traffic, answer.body())
                && (*lifetime == ForwardLifetime::Long
                    || answer.status() == StatusCode::SWITCHING_PROTOCOLS)
            {
                traffic.allow_pauses();
            }
            let (mut parts, body) = answer.into_parts();
            let body = match (parts.extensions.remove::<Framing>(), upgrade, body) {
                (Some(framing), Some((hijack, upgrade)), body) => {
                    let body = ClientBody::from(body).map_err(Into::into).boxed_unsync();
                    hijack.put(Hijacked::WebSocket(Box::new(Socket::new(
                        upgrade, body, framing,
                    ))));
                    AnswerBody::Whole(None)
                }
                (_, _, AnswerBody::Watch(watch)) if let Some(hijack) = hijack => {
                    let head = chunked_ok(&parts.headers, jiff::Timestamp::now());
                    hijack.put(Hijacked::Watch { head, watch });
                    // The connection's task takes the watch from the slot and drops this future.
                    std::future::pending().await
                }
                (_, _, body) => body,
            };
            let adopter = adopter.filter(|_| matches!(body, AnswerBody::Watch(_)));
            let body = ClientBody::new(body, version, in_flight).with_adopter(adopter);
            Ok(Response::from_parts(parts, body))
        })
    }
}

impl HyperService {
    /// Counts a request, unless it is refused. Over HTTP/2 its fields are bounded here; over HTTP/1.1 hyper has bounded them.
    fn begin(&self, request: &Request<Incoming>) -> Result<InFlightRequest, Box<ClientResponse>> {
        let fields = request.headers().len();
        let traffic = self.traffic.as_ref();
        let mut answer = if traffic.is_some_and(Traffic::next_has_fragment) {
            PlainText::bad_target().to_response()
        } else if fields > HEADERS_MAX {
            let mut answer = Response::new(Bytes::new());
            *answer.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            answer
        } else if let Some(request_in_flight) = self.abort_limit.begin(fields) {
            return Ok(request_in_flight);
        } else {
            let message = "too many requests with long heads wait on this connection";
            Status::too_many_requests(message, 1).to_response()
        };
        self.service.metrics().bad_requests.inc(BadRequest::Http);
        announce_close(&mut answer, request.version());
        let answer = with_audit_id(answer.map(AnswerBody::whole), &audit_id(request.headers()));
        Err(Box::new(answer.map(Into::into)))
    }

    fn refused(&self, request: &Request<Incoming>, shortage: Shortage) -> ClientResponse {
        let (limit, kind) = (LimitLabel::Connections, PermitKind::Connections);
        let refusal = self
            .service
            .admission()
            .refuse_permit(limit, kind, shortage);
        let mut answer = refusal.to_response();
        // The listener closes the connection after `REFUSAL_TIME`, over HTTP/2, too.
        announce_close(&mut answer, request.version());
        with_audit_id(answer.map(AnswerBody::whole), &audit_id(request.headers())).map(Into::into)
    }
}

/// Says that the connection is closed after this response. HTTP/2 has no such header.
fn announce_close<B>(answer: &mut Response<B>, version: Version) {
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
}

/// Whether the response may be written without hyper and followed by further requests on the connection.
fn can_be_hijacked(request: &Request<Incoming>) -> bool {
    let mut options = request
        .headers()
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let closes = options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
    request.version() == Version::HTTP_11 && request.body().is_end_stream() && !closes
}
