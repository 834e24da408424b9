//! How much is forwarded at once, by kind, and which client's it is. Waits for nothing: what has no place is refused.

use std::sync::Once;

use http::{Request, StatusCode, Version};

use super::refusal::ForwardRefusal;
use crate::config::{ForwardLimits, OpenFiles};
use crate::fairness::{Peer, Permit, Permits, Shortage};
use crate::metrics::PermitKind;

/// Kinds of forwarded requests, none of which takes the places of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardLane {
    /// They end soon.
    Requests,
    /// The same of callers whose credentials upstream may not take. Each has a connection to itself.
    Unproven,
    /// Watches, logs, proxied services: they may last for hours.
    Watches,
    /// The same of callers whose credentials upstream may not take. Each has a connection to itself for as long as it lasts.
    UnprovenWatches,
    /// Upgraded connections.
    Tunnels,
}

/// Clients that were refused together must not come back together.
const REQUEST_RETRY_SECONDS: std::ops::Range<f64> = 1.0..5.0;
/// These places are held for minutes.
const WATCH_RETRY_SECONDS: std::ops::Range<f64> = 5.0..15.0;

/// Requests that need a connection each, because upstream may close it after them. They end soon.
const UNPROVEN_MAX: usize = 128;

/// The places of one request, given back when dropped.
#[derive(Debug)]
pub(super) struct LanePermit {
    _permit: Permit,
    /// Of a watch with a connection to itself, which is one of all watches, too.
    _apart: Option<Permit>,
}

impl ForwardLane {
    /// The lane of a request in this one whose credentials upstream may not take.
    pub(super) const fn unproven(self) -> Self {
        match self {
            Self::Requests | Self::Unproven => Self::Unproven,
            Self::Watches | Self::UnprovenWatches => Self::UnprovenWatches,
            // They share no connection anyway.
            Self::Tunnels => Self::Tunnels,
        }
    }

    /// Whether its connections tell which version of HTTP upstream prefers.
    pub(super) const fn is_negotiated(self) -> bool {
        matches!(self, Self::Requests | Self::Watches)
    }

    /// Whether a short answer is read before it is passed on, so that a client which does not read it holds no place. Those of proxied
    /// services may be slow on purpose.
    pub(super) fn reads_at_once(self, status: StatusCode) -> bool {
        let is_refusal = status.is_client_error() || status.is_server_error();
        self == Self::Unproven || self == Self::UnprovenWatches && is_refusal
    }

    /// What its places are counted as.
    pub(super) const fn place(self) -> PermitKind {
        match self {
            Self::Requests | Self::Unproven => PermitKind::ForwardedRequests,
            Self::Watches | Self::UnprovenWatches => PermitKind::ForwardedWatches,
            Self::Tunnels => PermitKind::Tunnels,
        }
    }

    /// The answer when there is no place in it.
    pub(super) fn full(self) -> ForwardRefusal {
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

/// The places of all lanes.
#[derive(Debug)]
pub(super) struct ForwardLanes {
    requests: Permits,
    unproven: Permits,
    watches: Permits,
    unproven_watches: Permits,
    tunnels: Permits,
    files: OpenFiles,
    /// Done when upstream turned out to speak HTTP/1.1.
    http1: Once,
}

impl ForwardLanes {
    /// `is_http1`: upstream is known to speak HTTP/1.1, where every request holds a connection.
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

    /// A place for the client that sent the request, if its share allows one.
    pub(super) fn enter<B>(
        &self,
        lane: ForwardLane,
        request: &Request<B>,
    ) -> Result<LanePermit, Shortage> {
        let peer = request.extensions().get().copied().unwrap_or(Peer::UNKNOWN);
        let permits = match lane {
            ForwardLane::Requests => &self.requests,
            ForwardLane::Unproven => &self.unproven,
            ForwardLane::Watches | ForwardLane::UnprovenWatches => &self.watches,
            ForwardLane::Tunnels => &self.tunnels,
        };
        let is_apart = lane == ForwardLane::UnprovenWatches;
        let apart = is_apart.then(|| self.unproven_watches.acquire(peer));
        Ok(LanePermit {
            _apart: apart.transpose()?,
            _permit: permits.acquire(peer)?,
        })
    }

    /// Whether upstream is known to speak HTTP/1.1.
    pub(super) fn are_http1(&self) -> bool {
        self.http1.is_completed()
    }

    /// Upstream has answered in this version. Which one it speaks over TLS is not known before.
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
