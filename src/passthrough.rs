//! Everything that is not served from memory, streamed both ways. Decides nothing about who may do what: upstream does.

mod body;
mod headers;
mod refusal;
mod tunnel;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use crate::upstream::client::{Client, Identity, RequestBody, ResponseBody, SendError};

use headers::Upgrade;
use refusal::Refusal;
use tunnel::Tunnels;

pub use body::PassthroughBody;

/// Forwards requests to the API server and its answers back, byte for byte except for what belongs to one connection.
///
/// Paths, queries and bodies are not looked at and never collected. With [`Identity::Gateway`] the caller's
/// `Authorization` gives way to the gateway's, and requests with `Impersonate-*` are refused: forwarded, they would let any
/// caller use whatever impersonation the gateway is granted.
pub struct Passthrough {
    client: Client,
    identity: Identity,
    counts: Arc<PassthroughCounts>,
    tunnels: Tunnels,
}

impl Passthrough {
    /// Forwards over `client`, all requests under the same kind of identity.
    #[must_use]
    pub fn new(client: Client, identity: Identity, counts: Arc<PassthroughCounts>) -> Self {
        Self {
            client,
            identity,
            tunnels: Tunnels::new(counts.clone()),
            counts,
        }
    }

    /// Forwards one request. Always answers: with upstream's response whatever its status, or with a `Status` of its own
    /// where there is none. Dropping the future, or later the body, cancels the request upstream.
    ///
    /// For upgrades the connection of `request` must be served with upgrades enabled.
    pub async fn forward(&self, request: Request<Incoming>) -> Response<PassthroughBody> {
        add(&self.counts.requests, 1);
        let audit_id = request.headers().get(headers::AUDIT_ID).cloned();
        let outcome = match self.refuse(&request) {
            Some(refusal) => Err(refusal),
            None => self.exchange(request).await,
        };
        outcome.unwrap_or_else(|refusal| {
            let counter = match refusal {
                Refusal::Impersonation | Refusal::Connect | Refusal::TooMany => {
                    &self.counts.refused
                }
                _ => &self.counts.failed,
            };
            add(counter, 1);
            let mut response = refusal.into_response().map(PassthroughBody::from);
            if let Some(audit_id) = audit_id {
                response.headers_mut().insert(headers::AUDIT_ID, audit_id);
            }
            response
        })
    }

    /// Ends the upgraded connections: no new ones, those open may go on for `grace` and are cut then.
    /// Returns how many were cut. Requests that are not upgraded end with their own connections.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.tunnels.drain(grace).await
    }

    fn refuse<B>(&self, request: &Request<B>) -> Option<Refusal> {
        if request.method() == Method::CONNECT {
            return Some(Refusal::Connect);
        }
        let impersonates = headers::impersonates(request.headers());
        (self.identity == Identity::Gateway && impersonates).then_some(Refusal::Impersonation)
    }

    async fn exchange(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Response<PassthroughBody>, Refusal> {
        let upgrade = match request.version() {
            Version::HTTP_11 => Upgrade::asked_by(request.headers()),
            _ => None,
        };
        headers::clear_request(request.headers_mut());
        match upgrade {
            Some(upgrade) => self.exchange_upgrade(request, upgrade).await,
            None => self.exchange_plain(request).await,
        }
    }

    async fn exchange_plain(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<PassthroughBody>, Refusal> {
        let repeatable = is_repeatable(request.method());
        let response = self
            .client
            .forward(self.identity, outgoing(request))
            .await
            .map_err(|error| failed(&error, repeatable))?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Refusal::Unasked);
        }
        Ok(self.incoming(response))
    }

    async fn exchange_upgrade(
        &self,
        mut request: Request<Incoming>,
        upgrade: Upgrade,
    ) -> Result<Response<PassthroughBody>, Refusal> {
        let place = self.tunnels.place().ok_or(Refusal::TooMany)?;
        let downstream = hyper::upgrade::on(&mut request);
        let repeatable = is_repeatable(request.method());
        let mut request = outgoing(request);
        upgrade.ask(request.headers_mut());
        let mut response = self
            .client
            .send_upgrade(self.identity, request)
            .await
            .map_err(|error| failed(&error, repeatable))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(self.incoming(response));
        }
        let granted = Upgrade::asked_by(response.headers()).unwrap_or(upgrade);
        let upstream = hyper::upgrade::on(&mut response);
        self.tunnels.open(place, downstream, upstream);
        let mut switching = Response::new(PassthroughBody::empty());
        *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *switching.headers_mut() = std::mem::take(response.headers_mut());
        headers::clear_response(switching.headers_mut());
        granted.ask(switching.headers_mut());
        Ok(switching)
    }

    fn incoming(&self, response: Response<ResponseBody>) -> Response<PassthroughBody> {
        let (mut parts, body) = response.into_parts();
        headers::clear_response(&mut parts.headers);
        // Upstream's connection says nothing about the version and the extensions of ours.
        let mut response = Response::new(PassthroughBody::upstream(body, self.counts.clone()));
        *response.status_mut() = parts.status;
        *response.headers_mut() = parts.headers;
        response
    }
}

/// What the pass-through has done since the start. Written by requests, read by whoever exports metrics: every
/// load and store is relaxed, as each number stands for itself.
#[derive(Debug, Default)]
pub struct PassthroughCounts {
    /// Requests taken.
    pub requests: AtomicU64,
    /// Requests refused here: impersonation, `CONNECT`, too many upgraded connections.
    pub refused: AtomicU64,
    /// Requests that upstream did not answer.
    pub failed: AtomicU64,
    /// Body bytes handed downstream.
    pub body_len_down: AtomicU64,
    /// Response bodies that broke off.
    pub bodies_broken: AtomicU64,
    /// Connections upgraded.
    pub tunnels_opened: AtomicU64,
    /// Upgraded connections that have ended.
    pub tunnels_closed: AtomicU64,
    /// Bytes that upgraded connections carried, both ways; added when they end.
    pub tunnel_len: AtomicU64,
}

fn add(counter: &AtomicU64, amount: u64) {
    // Relaxed: a statistic, nothing is published by it.
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Keeps method, path with query, headers and body; leaves behind what belongs to the caller's connection.
fn outgoing(request: Request<Incoming>) -> Request<RequestBody> {
    let (parts, body) = request.into_parts();
    let mut request = Request::new(RequestBody::from(body));
    *request.method_mut() = parts.method;
    *request.uri_mut() = parts.uri;
    *request.headers_mut() = parts.headers;
    request
}

/// Methods that change nothing (RFC 9110 §9.2.1).
fn is_repeatable(method: &Method) -> bool {
    method.is_safe()
}

fn failed(error: &SendError, repeatable: bool) -> Refusal {
    tracing::debug!(
        error = error as &dyn std::error::Error,
        "request not passed on"
    );
    match error {
        SendError::Saturated => Refusal::TooMany,
        SendError::Timeout => Refusal::Timeout,
        SendError::Target(_) => Refusal::Target,
        SendError::Unreachable(_)
        | SendError::Untrusted(_)
        | SendError::Credentials(_)
        | SendError::Broken(_) => Refusal::Unreachable {
            reason: error.to_string(),
            may_repeat: repeatable || error.is_unsent(),
        },
    }
}
