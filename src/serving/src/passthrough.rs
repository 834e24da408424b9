//! Forwards every request that is not served from memory, and streams bodies in both directions. Upstream authorizes; this room only
//! decides whose credentials a request carries and how many requests may be open.
//!
//! Start reading at [`Passthrough::forward`]. `lanes` limits requests by kind and client, `headers` separates connection headers from
//! end-to-end ones, `proven_tokens` decides which requests may share a connection, `body` and `guarded` stream and end responses,
//! `deadlines` and `boundary` say when and where, `upload` notes whether a request's body still comes, `tunnel` runs upgraded connections,
//! and `refusal` is the gateway's own errors.

mod active;
mod answer;
mod body;
mod body_error;
mod boundary;
mod deadlines;
mod guarded;
mod headers;
mod lanes;
mod proven_tokens;
mod refusal;
mod shared_request;
mod tunnel;
mod upload;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tracing::{Instrument, Span, trace_span};

use crate::auth::guard::Forwarding;
use crate::auth::impersonation::Impersonator;
use crate::config::{ForwardLimits, OpenFiles};
use crate::fairness::Peer;
use crate::metrics::PassthroughMetrics;
use crate::telemetry::{SPAN_TARGET, propagate, record_outcome};
use crate::upstream::client::{BodySendGuard, Client, ForwardIdentity, RequestBody, ResponseBody};

use active::ActiveRequest;
use answer::{incoming, send_error, short_answer};
use body::UnguardedBody;
use boundary::Boundary;
use deadlines::ForwardEnd;
use guarded::StreamLimits;
use headers::Upgrade;
use lanes::{ForwardLane, ForwardLanes, LanePermit};
use proven_tokens::{ProvenTokens, TokenHash};
use refusal::ForwardRefusal;
use tunnel::Tunnels;
use upload::Upload;

pub use body::PassthroughBody;
pub use body_error::BodyError;
pub use deadlines::ForwardDeadlines;
pub use headers::ProxyHeaders;
pub use refusal::OwnStatus;

/// Forwards requests to the API server and its responses to the client, byte for byte except for the headers of a single connection.
///
/// Paths, queries and bodies are neither parsed nor collected. With [`ForwardIdentity::Gateway`], where callers are not authenticated,
/// the gateway's `Authorization` replaces the caller's, and requests with `Impersonate-*` are refused: forwarding them would let any
/// caller use every impersonation that the gateway is allowed.
///
/// With [`ForwardIdentity::Caller`] a request carries its caller's own credentials, over connections that carry none of the gateway's,
/// unless its [`Forwarding`] says that the gateway impersonates the caller.
pub struct Passthrough {
    client: Client,
    identity: ForwardIdentity,
    proxy_headers: ProxyHeaders,
    impersonator: Impersonator,
    metrics: Arc<PassthroughMetrics>,
    lanes: ForwardLanes,
    proven: ProvenTokens,
    tunnels: Tunnels,
    answer_wait_max: Duration,
    event_grace: Duration,
}

/// A request that is forwarded.
#[derive(Debug)]
pub struct PassthroughRequest {
    /// The request as it was received.
    pub http: Request<Incoming>,
    /// The client whose share of permits pays for the request.
    pub peer: Peer,
    /// The address of the client's connection, which upstream is told.
    pub address: IpAddr,
    /// Whose identity the request carries; `None` if callers are not authenticated.
    pub forwarding: Option<Forwarding>,
}

/// The result of a forwarded request.
#[expect(clippy::large_enum_variant, reason = "most of them are answers")]
enum Exchange {
    Answer(Response<UnguardedBody>),
    Switch(Box<ProtocolSwitch>),
}

/// Upstream's 101 response, and what is needed to connect both sides.
struct ProtocolSwitch {
    response: Response<ResponseBody>,
    pending: PendingUpgrade,
    active: ActiveRequest,
}

/// The protocol that a client asks for, and its connection once both sides have switched to it.
struct PendingUpgrade {
    upgrade: Upgrade,
    downstream: OnUpgrade,
}

/// How a request travels upstream.
struct ForwardRoute {
    lane: ForwardLane,
    sender: ForwardSender,
    upgrade: Option<Upgrade>,
}

/// Whose credentials a request carries upstream.
#[derive(Clone, Copy, Debug)]
enum ForwardSender {
    Gateway,
    /// The caller's token, if it has one.
    Caller(Option<TokenHash>),
}

/// kube-apiserver ends requests that are not long-running after 60 s. This is a little longer, so that its own error comes first.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(65);

/// The time for the rest of an event when its watch must end. The event is in flight already, so this is for slow links.
const EVENT_GRACE: Duration = Duration::from_secs(10);

impl Passthrough {
    /// Forwards over `client`. `identity` applies to requests without a [`Forwarding`].
    #[must_use]
    pub fn new(client: Client, identity: ForwardIdentity, metrics: PassthroughMetrics) -> Self {
        Self {
            lanes: ForwardLanes::new(
                ForwardLimits::default(),
                OpenFiles::of_process(0),
                client.is_clear_text(),
            ),
            client,
            identity,
            proven: ProvenTokens::new(),
            proxy_headers: ProxyHeaders::default(),
            impersonator: Impersonator::default(),
            metrics: Arc::new(metrics),
            tunnels: Tunnels::new(),
            answer_wait_max: ANSWER_WAIT_MAX,
            event_grace: EVENT_GRACE,
        }
    }

    /// Sets the headers in which front proxies send users; they are removed from every request.
    #[must_use]
    pub fn with_proxy_headers(self, proxy_headers: ProxyHeaders) -> Self {
        Self {
            proxy_headers,
            ..self
        }
    }

    /// Sets what writes the headers by which the gateway acts as callers.
    #[must_use]
    pub fn impersonating(self, impersonator: Impersonator) -> Self {
        Self {
            impersonator,
            ..self
        }
    }

    /// Sets another limit for the start of upstream's response, and for silence within responses that end soon.
    #[must_use]
    pub fn answered_within(self, answer_wait_max: Duration) -> Self {
        Self {
            answer_wait_max,
            ..self
        }
    }

    /// Sets another grace for an event that is in flight when its watch must end.
    #[must_use]
    pub fn with_event_grace(self, event_grace: Duration) -> Self {
        Self {
            event_grace,
            ..self
        }
    }

    /// Sets the limits of forwarded requests and of open files.
    #[must_use]
    pub fn bounded(self, limits: ForwardLimits, files: OpenFiles) -> Self {
        Self {
            lanes: ForwardLanes::new(limits, files, self.client.is_clear_text()),
            ..self
        }
    }

    /// Forwards one request that ends soon. Always returns a response: upstream's, whatever its status, or the gateway's own `Status` if
    /// upstream does not answer, or not in time. Dropping the future, or later the body, cancels the request upstream.
    ///
    /// Each client has a share of the requests that are open at a time. For upgrades, the connection of `request` must be served with
    /// upgrades enabled.
    pub async fn forward(
        &self,
        request: PassthroughRequest,
        mut deadlines: ForwardDeadlines,
    ) -> Response<PassthroughBody> {
        let answer = self
            .answered_in(ForwardLane::Requests, request, &mut deadlines)
            .await;
        answer.map(|body| {
            body.within(StreamLimits {
                silence_max: Some(self.answer_wait_max),
                ..self.limits(deadlines, None)
            })
        })
    }

    /// Forwards a request that may last, and be silent, for any time: a followed log, a proxied service.
    pub async fn forward_long(
        &self,
        request: PassthroughRequest,
        mut deadlines: ForwardDeadlines,
    ) -> Response<PassthroughBody> {
        let answer = self
            .forward_in(ForwardLane::Watches, request, &mut deadlines)
            .await;
        answer.map(|body| body.within(self.limits(deadlines, None)))
    }

    /// Forwards a request whose response must start within the time limit.
    async fn answered_in(
        &self,
        lane: ForwardLane,
        request: PassthroughRequest,
        deadlines: &mut ForwardDeadlines,
    ) -> Response<UnguardedBody> {
        let audit_id = request.http.headers().get(headers::AUDIT_ID).cloned();
        let answer = self.forward_in(lane, request, deadlines);
        tokio::time::timeout(self.answer_wait_max, answer)
            .await
            .unwrap_or_else(|_elapsed| self.refused(ForwardRefusal::Timeout, audit_id))
    }

    async fn forward_in(
        &self,
        lane: ForwardLane,
        request: PassthroughRequest,
        deadlines: &mut ForwardDeadlines,
    ) -> Response<UnguardedBody> {
        let span = trace_span!(
            target: SPAN_TARGET,
            "forward",
            otel.kind = "client",
            outcome = tracing::field::Empty
        );
        let response = self.forward_in_span(lane, request, deadlines);
        let response = response.instrument(span.clone()).await;
        record_outcome(&span, response.status());
        response
    }

    async fn forward_in_span(
        &self,
        lane: ForwardLane,
        request: PassthroughRequest,
        deadlines: &mut ForwardDeadlines,
    ) -> Response<UnguardedBody> {
        let active = ActiveRequest::begin(&self.metrics, deadlines.take_permit());
        let audit_id = request.http.headers().get(headers::AUDIT_ID).cloned();
        let exchange = match self.admit(lane, &request) {
            Err(refusal) => Err(refusal),
            Ok((route, mut permit)) => {
                deadlines.reclaimed_by(permit.reclaimable());
                let active = active.with_permit(permit);
                let repeatable = is_repeatable(request.http.method());
                // Dropping the future cancels the request upstream.
                tokio::select! {
                    exchange = self.exchange(&route, request, active) => exchange,
                    end = deadlines.limit() => Err(match end {
                        ForwardEnd::Due => ForwardRefusal::Ended,
                        ForwardEnd::Reclaimed => ForwardRefusal::Reclaimed { may_repeat: repeatable },
                    }),
                }
            }
        };
        match exchange {
            Ok(Exchange::Answer(answer)) => answer,
            Ok(Exchange::Switch(switch)) => self.switch(*switch, std::mem::take(deadlines)),
            Err(refusal) => self.refused(refusal, audit_id),
        }
    }

    fn refused(
        &self,
        refusal: ForwardRefusal,
        audit_id: Option<HeaderValue>,
    ) -> Response<UnguardedBody> {
        self.metrics.errors.inc(refusal.label());
        let mut response = refusal.into_response().map(UnguardedBody::Own);
        if let Some(audit_id) = audit_id {
            response.headers_mut().insert(headers::AUDIT_ID, audit_id);
        }
        response
    }

    /// Forwards a watch. Upstream accepts or refuses it at once, and may then be silent until something happens.
    pub async fn forward_watch(
        &self,
        request: PassthroughRequest,
        mut deadlines: ForwardDeadlines,
    ) -> Response<PassthroughBody> {
        let response = self
            .answered_in(ForwardLane::Watches, request, &mut deadlines)
            .await;
        let boundary = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| Boundary::of(value.to_str().ok()?));
        let boundary = boundary.filter(|_| response.status() == StatusCode::OK);
        response.map(|body| body.within(self.limits(deadlines, boundary)))
    }

    fn limits(&self, deadlines: ForwardDeadlines, boundary: Option<Boundary>) -> StreamLimits {
        StreamLimits {
            deadlines,
            boundary,
            grace: self.event_grace,
            silence_max: None,
        }
    }

    /// Drains the upgraded connections: opens no more, lets those that are open continue for `grace`, and then closes them. Returns how
    /// many it closed. Other requests end with their own connections.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.tunnels.drain(grace).await
    }

    /// Decides how a request travels, and takes its permits.
    fn admit(
        &self,
        lane: ForwardLane,
        request: &PassthroughRequest,
    ) -> Result<(ForwardRoute, LanePermit), ForwardRefusal> {
        let http = &request.http;
        if let Some(refusal) = ForwardRefusal::of(http, self.identity) {
            return Err(refusal);
        }
        let upgrade = match http.version() {
            Version::HTTP_11 => Upgrade::requested_by(http.headers()),
            _ => None,
        };
        let sender = self.sender(http.headers(), request.forwarding.as_ref());
        let lane = match (&upgrade, lane) {
            (Some(_), _) => ForwardLane::Tunnels,
            (None, lane) if !self.may_share(sender) => lane.unproven(),
            (None, lane) => lane,
        };
        let permit = self.lanes.acquire(lane, request.peer).map_err(|shortage| {
            self.metrics.shortages.inc(lane.permit_kind(), shortage);
            lane.refusal()
        });
        let route = ForwardRoute {
            lane,
            sender,
            upgrade,
        };
        Ok((route, permit?))
    }

    async fn exchange(
        &self,
        route: &ForwardRoute,
        request: PassthroughRequest,
        active: ActiveRequest,
    ) -> Result<Exchange, ForwardRefusal> {
        let PassthroughRequest {
            http: mut request,
            address,
            forwarding,
            ..
        } = request;
        let lane = route.lane;
        let has_body = !request.body().is_end_stream();
        headers::clear_request(request.headers_mut(), &self.proxy_headers);
        headers::append_client(request.headers_mut(), address);
        if has_body && self.uses_http1(lane) {
            // Otherwise Go's server reads up to 256 KiB of the body before it sends a refusal. Over HTTP/2 it refuses at once.
            let close = HeaderValue::from_static("close");
            request.headers_mut().insert(CONNECTION, close);
        }
        propagate(&Span::current(), request.headers_mut());
        let identity = self.identify(request.headers_mut(), forwarding)?;
        let upload = Arc::new(Upload::new(self.metrics.bytes_sent.clone()));
        let stalled = Upload::stalled(Arc::downgrade(&upload), self.answer_wait_max);
        let upgrade = route.upgrade.clone().map(|upgrade| PendingUpgrade {
            upgrade,
            downstream: hyper::upgrade::on(&mut request),
        });
        let (request, send_guard) = outgoing(request, upload);
        let active = active.with_send_guard(send_guard);
        let exchange = async {
            match upgrade {
                Some(upgrade) => {
                    let exchange = self.exchange_upgrade(identity, request, upgrade, active);
                    // A tunnel carries nothing before upstream has answered.
                    let answered = tokio::time::timeout(self.answer_wait_max, exchange).await;
                    answered.unwrap_or(Err(ForwardRefusal::Timeout))
                }
                None => {
                    let answer = self.exchange_plain(route.sender, lane, request, active);
                    answer.await.map(Exchange::Answer)
                }
            }
        };
        // Upstream may wait for the body before it answers. After it, what may last is silent for as long as a container or a service is.
        tokio::select! {
            exchange = exchange => exchange,
            () = stalled => Err(ForwardRefusal::Timeout),
        }
    }

    /// Whose credentials upstream will see.
    fn sender(&self, headers: &HeaderMap, forwarding: Option<&Forwarding>) -> ForwardSender {
        match (self.identity, forwarding) {
            (ForwardIdentity::Gateway, _)
            | (ForwardIdentity::Caller, Some(Forwarding::Impersonating { .. })) => {
                ForwardSender::Gateway
            }
            (ForwardIdentity::Caller, Some(Forwarding::AsCaller) | None) => {
                ForwardSender::Caller(self.proven.hash(headers))
            }
        }
    }

    /// Whether a request may share a connection with others. Over HTTP/1.1 requests never do.
    fn may_share(&self, sender: ForwardSender) -> bool {
        self.lanes.are_http1() || self.is_proven(sender)
    }

    /// Whether such a request is known to travel over HTTP/1.1.
    fn uses_http1(&self, lane: ForwardLane) -> bool {
        self.lanes.are_http1() || !lane.is_negotiated()
    }

    /// Whether upstream has accepted the credentials recently.
    fn is_proven(&self, sender: ForwardSender) -> bool {
        match sender {
            ForwardSender::Gateway => true,
            ForwardSender::Caller(token) => token.is_some_and(|token| self.proven.has(token)),
        }
    }

    /// Decides which identity a request carries, and removes the credential headers that do not belong to it.
    fn identify(
        &self,
        headers: &mut HeaderMap,
        forwarding: Option<Forwarding>,
    ) -> Result<ForwardIdentity, ForwardRefusal> {
        match (self.identity, forwarding) {
            (ForwardIdentity::Gateway, _) => {
                headers::make_anonymous(headers);
                Ok(ForwardIdentity::Gateway)
            }
            (ForwardIdentity::Caller, Some(Forwarding::Impersonating { caller, .. })) => {
                headers::impersonate(headers, &self.impersonator, &caller.user)?;
                Ok(ForwardIdentity::Gateway)
            }
            (ForwardIdentity::Caller, Some(Forwarding::AsCaller) | None) => {
                Ok(ForwardIdentity::Caller)
            }
        }
    }

    async fn exchange_plain(
        &self,
        sender: ForwardSender,
        lane: ForwardLane,
        request: Request<RequestBody>,
        active: ActiveRequest,
    ) -> Result<Response<UnguardedBody>, ForwardRefusal> {
        let method = request.method().clone();
        let repeatable = is_repeatable(&method);
        let identity = match sender {
            ForwardSender::Gateway => ForwardIdentity::Gateway,
            ForwardSender::Caller(_) => ForwardIdentity::Caller,
        };
        let response = match lane {
            ForwardLane::Watches => self.client.forward_watch(identity, request).await,
            ForwardLane::Unproven => self.client.forward_apart(request).await,
            ForwardLane::UnprovenWatches => self.client.forward_watch_apart(request).await,
            ForwardLane::Requests | ForwardLane::Tunnels => {
                self.client.forward(identity, request).await
            }
        };
        let response = response.map_err(|error| send_error(&error, lane, repeatable))?;
        if lane.is_negotiated() {
            self.lanes.learn(response.version());
        }
        if let ForwardSender::Caller(Some(token)) = sender {
            self.proven.learn(token, response.status()).await;
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(ForwardRefusal::Unasked);
        }
        if lane.reads_at_once(&response, &method) {
            return short_answer(response, active, repeatable, self.answer_wait_max).await;
        }
        Ok(incoming(response, active))
    }

    async fn exchange_upgrade(
        &self,
        identity: ForwardIdentity,
        mut request: Request<RequestBody>,
        pending: PendingUpgrade,
        active: ActiveRequest,
    ) -> Result<Exchange, ForwardRefusal> {
        if !self.tunnels.are_open() {
            return Err(ForwardLane::Tunnels.refusal());
        }
        // A GET may have started a process in a container.
        let repeatable = false;
        let method = request.method().clone();
        pending.upgrade.write_to(request.headers_mut());
        let response = self
            .client
            .send_upgrade(identity, request)
            .await
            .map_err(|error| send_error(&error, ForwardLane::Tunnels, repeatable))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let answer = match ForwardLane::Tunnels.reads_at_once(&response, &method) {
                true => short_answer(response, active, repeatable, self.answer_wait_max).await?,
                false => incoming(response, active),
            };
            return Ok(Exchange::Answer(answer));
        }
        Ok(Exchange::Switch(Box::new(ProtocolSwitch {
            response,
            pending,
            active,
        })))
    }

    /// Answers the client with upstream's 101, and connects both sides.
    fn switch(
        &self,
        switch: ProtocolSwitch,
        deadlines: ForwardDeadlines,
    ) -> Response<UnguardedBody> {
        let ProtocolSwitch {
            mut response,
            pending,
            active,
        } = switch;
        let granted = Upgrade::requested_by(response.headers()).unwrap_or(pending.upgrade);
        let upstream = hyper::upgrade::on(&mut response);
        self.metrics.upgrades.inc();
        self.tunnels
            .open(active, pending.downstream, upstream, deadlines);
        let mut switching = Response::new(UnguardedBody::Own(Bytes::new()));
        *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *switching.headers_mut() = std::mem::take(response.headers_mut());
        headers::clear_response(switching.headers_mut());
        granted.write_to(switching.headers_mut());
        switching
    }
}

/// Builds the request to upstream: method, path with query, headers and body, without what belongs to the caller's connection.
fn outgoing(
    request: Request<Incoming>,
    upload: Arc<Upload>,
) -> (Request<RequestBody>, Option<BodySendGuard>) {
    let (parts, body) = request.into_parts();
    let (body, send_guard) = RequestBody::observed(body, upload).while_wanted();
    let mut request = Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = parts.uri;
    *request.headers_mut() = parts.headers;
    (request, send_guard)
}

/// Methods that change nothing (RFC 9110 §9.2.1).
fn is_repeatable(method: &Method) -> bool {
    method.is_safe()
}
