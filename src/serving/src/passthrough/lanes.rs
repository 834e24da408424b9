//! Limits how many requests are forwarded at a time, by kind and by client. Requests do not wait: without a permit they are refused, or end
//! a request of a client that has more.

use std::sync::Once;

use http::header::CONTENT_LENGTH;
use http::{Method, Response, Version};

use super::refusal::ForwardRefusal;
use crate::config::{ForwardLimits, OpenFiles};
use crate::fairness::{Peer, Permit, Permits, Shortage};
use crate::metrics::PermitKind;

/// Kinds of forwarded requests; each has its own permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardLane {
    /// Requests that end soon.
    Requests,
    /// Requests that end soon, from callers whose credentials upstream may reject. Each uses a connection of its own.
    Unproven,
    /// Watches, logs, proxied services: they may last for hours.
    Watches,
    /// Watches from callers whose credentials upstream may reject. Each uses a connection of its own for as long as it lasts.
    UnprovenWatches,
    /// Upgraded connections.
    Tunnels,
}

/// A random range, so that clients that were refused together do not come back together.
const REQUEST_RETRY_SECONDS: std::ops::Range<f64> = 1.0..5.0;
/// These permits are held for minutes.
const WATCH_RETRY_SECONDS: std::ops::Range<f64> = 5.0..15.0;

/// Requests that need a connection of their own, because upstream may close it after them. They end soon.
const UNPROVEN_MAX: usize = 128;

/// The longest response that is read at once, in bytes.
const SHORT_ANSWER_LEN_MAX: usize = 16 << 10;

/// The permits of one request, released when dropped.
#[derive(Debug)]
pub(super) struct LanePermit {
    permit: Permit,
    /// For a watch on a connection of its own; it needs both permits.
    connection: Option<Permit>,
}

impl LanePermit {
    /// Completes when one of the permits was taken back.
    pub(super) fn reclaimable(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let permit = self.permit.reclaimable();
        let connection = self.connection.as_mut().map(Permit::reclaimable);
        async move {
            let connection = async {
                match connection {
                    Some(connection) => connection.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = permit => {}
                () = connection => {}
            }
        }
    }
}

impl ForwardLane {
    /// The lane of such a request if upstream may reject its credentials.
    pub(super) const fn unproven(self) -> Self {
        match self {
            Self::Requests | Self::Unproven => Self::Unproven,
            Self::Watches | Self::UnprovenWatches => Self::UnprovenWatches,
            // Tunnels never share a connection.
            Self::Tunnels => Self::Tunnels,
        }
    }

    /// Whether the responses in this lane show the HTTP version that upstream prefers.
    pub(super) const fn is_negotiated(self) -> bool {
        matches!(self, Self::Requests | Self::Watches)
    }

    /// Whether a response is read completely before it is passed on, so that a client which does not read it holds no permit. Short refusals
    /// are, and every short response where permits are few. Other responses may be slow on purpose.
    pub(super) fn reads_at_once<B>(self, response: &Response<B>, method: &Method) -> bool {
        let status = response.status();
        let is_refusal = status.is_client_error() || status.is_server_error();
        let len = response.headers().get(CONTENT_LENGTH);
        let len: Option<usize> = len.and_then(|len| len.to_str().ok()?.parse().ok());
        // To HEAD, the length is not that of the response.
        (is_refusal || self == Self::Unproven)
            && method != Method::HEAD
            && len.is_some_and(|len| len <= SHORT_ANSWER_LEN_MAX)
    }

    /// The kind of its permits in metrics.
    pub(super) const fn permit_kind(self) -> PermitKind {
        match self {
            Self::Requests | Self::Unproven => PermitKind::ForwardedRequests,
            Self::Watches | Self::UnprovenWatches => PermitKind::ForwardedWatches,
            Self::Tunnels => PermitKind::Tunnels,
        }
    }

    /// The refusal when there is no permit.
    pub(super) fn refusal(self) -> ForwardRefusal {
        let range = match self {
            Self::Requests | Self::Unproven => REQUEST_RETRY_SECONDS,
            Self::Watches | Self::UnprovenWatches | Self::Tunnels => WATCH_RETRY_SECONDS,
        };
        let seconds = range.start + (range.end - range.start) * crate::resource::fraction();
        ForwardRefusal::TooMany {
            retry_after_seconds: std::time::Duration::from_secs_f64(seconds).as_secs(),
        }
    }
}

/// The permits of all lanes.
#[derive(Debug)]
pub(super) struct ForwardLanes {
    requests: Permits,
    unproven: Permits,
    watches: Permits,
    unproven_watches: Permits,
    tunnels: Permits,
    files: OpenFiles,
    /// Completed when upstream is known to speak HTTP/1.1.
    http1: Once,
}

impl ForwardLanes {
    /// `is_http1`: upstream is known to speak HTTP/1.1, where each request holds a connection.
    pub(super) fn new(limits: ForwardLimits, files: OpenFiles, is_http1: bool) -> Self {
        let lanes = Self {
            requests: Permits::new(limits.requests_max),
            unproven: Permits::new(
                UNPROVEN_MAX
                    .min(limits.requests_max)
                    .min(files.forwarded_requests),
            ),
            watches: Permits::new(limits.watches_max),
            unproven_watches: Permits::new(limits.watches_max.min(files.forwarded_watches)),
            tunnels: Permits::new(limits.tunnels_max.min(files.tunnels)),
            files,
            http1: Once::new(),
        };
        if is_http1 {
            lanes.learn(Version::HTTP_11);
        }
        lanes
    }

    /// A permit for this client, if its share allows one.
    pub(super) fn acquire(&self, lane: ForwardLane, peer: Peer) -> Result<LanePermit, Shortage> {
        let permits = match lane {
            ForwardLane::Requests => &self.requests,
            ForwardLane::Unproven => &self.unproven,
            ForwardLane::Watches | ForwardLane::UnprovenWatches => &self.watches,
            ForwardLane::Tunnels => &self.tunnels,
        };
        let needs_connection = lane == ForwardLane::UnprovenWatches;
        Ok(LanePermit {
            connection: needs_connection
                .then(|| self.unproven_watches.acquire(peer))
                .transpose()?,
            permit: permits.acquire(peer)?,
        })
    }

    /// Whether upstream is known to speak HTTP/1.1.
    pub(super) fn are_http1(&self) -> bool {
        self.http1.is_completed()
    }

    /// Records the version of a response. Over TLS the version that upstream speaks is not known before.
    pub(super) fn learn(&self, version: Version) {
        if version >= Version::HTTP_2 {
            return;
        }
        self.http1.call_once(|| {
            self.requests.lower(self.files.forwarded_requests);
            self.watches.lower(self.files.forwarded_watches);
        });
    }
}
