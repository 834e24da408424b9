//! How much is forwarded at once, by kind, and which client's it is. Waits for nothing: what has no place is refused.

use std::sync::Once;

use http::{Request, Version};

use super::refusal::Refusal;
use crate::config::{ForwardLimits, OpenFiles};
use crate::fairness::{Peer, Permit, Permits, Shortage};
use crate::metrics::Place;

/// Kinds of forwarded requests, none of which takes the places of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// They end soon.
    Requests,
    /// The same of callers whose credentials upstream may not take. Each has a connection to itself.
    Unproven,
    /// Watches, logs, proxied services: they may last for hours.
    Watches,
    /// Upgraded connections.
    Tunnels,
}

/// Clients that were refused together must not come back together.
const REQUEST_RETRY_SECONDS: std::ops::Range<f64> = 1.0..5.0;
/// These places are held for minutes.
const WATCH_RETRY_SECONDS: std::ops::Range<f64> = 5.0..15.0;

/// Requests that need a connection each, because upstream may close it after them. They end soon.
const UNPROVEN_MAX: usize = 128;

impl Lane {
    /// What its places are counted as.
    pub(super) const fn place(self) -> Place {
        match self {
            Self::Requests | Self::Unproven => Place::ForwardedRequests,
            Self::Watches => Place::ForwardedWatches,
            Self::Tunnels => Place::Tunnels,
        }
    }

    /// The answer when there is no place in it.
    pub(super) fn full(self) -> Refusal {
        let range = match self {
            Self::Requests | Self::Unproven => REQUEST_RETRY_SECONDS,
            Self::Watches | Self::Tunnels => WATCH_RETRY_SECONDS,
        };
        let seconds = range.start + (range.end - range.start) * crate::resource::fraction();
        Refusal::TooMany {
            retry_after_seconds: std::time::Duration::from_secs_f64(seconds).as_secs(),
        }
    }
}

/// The places of all lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    requests: Permits,
    unproven: Permits,
    watches: Permits,
    tunnels: Permits,
    files: OpenFiles,
    /// Done when upstream turned out to speak HTTP/1.1.
    http1: Once,
}

impl Lanes {
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
    pub(super) fn enter<B>(&self, lane: Lane, request: &Request<B>) -> Result<Permit, Shortage> {
        let peer = request.extensions().get().copied().unwrap_or(Peer::UNKNOWN);
        match lane {
            Lane::Requests => self.requests.acquire(peer),
            Lane::Unproven => self.unproven.acquire(peer),
            Lane::Watches => self.watches.acquire(peer),
            Lane::Tunnels => self.tunnels.acquire(peer),
        }
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
