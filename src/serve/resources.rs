//! What serving needs to know of the rest: where caches come from, and who answers what they can't.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::list::BlockCounts;
use crate::auth::caller::{Caller, Credential};
use crate::auth::guard::Forwarding;
use crate::auth::lease::Lease;
use crate::cache::Snapshot;
pub use crate::fairness::Peer;
use crate::fairness::Permit;
use crate::metrics::ListenerMetrics;
use crate::protocol::request::Verb;
use crate::resource::{CacheKey, Gates, Gvr, ResourceVersion};
use crate::view::ServedResource;
use crate::watch::WatchRecorder;

/// Whether a resource is answered from memory.
#[derive(Debug)]
pub enum Availability {
    /// Its cache is ready.
    Ready(ServedResource),
    /// Its cache is being filled: the client shall come again after so many seconds (docs/PROTOCOL.md §6.9).
    Filling {
        /// For Retry-After.
        retry_after_seconds: u32,
    },
    /// Upstream has the resource, but not in this encoding.
    OtherEncoding,
    /// Not from memory: the request is for upstream.
    Forwarded(Option<ForwardPermit>),
}

/// The right to be forwarded although a cache would answer soon. Goes with the request, as an extension, and is held until
/// its answer is over.
#[derive(Clone, Debug)]
pub struct ForwardPermit(Arc<Permit>);

impl ForwardPermit {
    /// For whoever holds it until the answer is over.
    #[must_use]
    pub fn into_inner(self) -> Arc<Permit> {
        self.0
    }
}

impl From<Permit> for ForwardPermit {
    fn from(permit: Permit) -> Self {
        Self(Arc::new(permit))
    }
}

/// A client may read what it asks for. Goes with a request that was authorized, as an extension; without it nothing that is shared
/// may be joined where callers are told apart.
#[derive(Clone, Debug)]
pub struct Permission {
    /// Who asks.
    pub caller: Arc<Caller>,
    /// Revoked when the caller may no longer read it.
    pub lease: Lease,
    /// When the caller's credential expires.
    pub expires_at: Option<Instant>,
}

impl Permission {
    /// For how long a stream may last that begins at `started` and would last for `timeout`.
    #[must_use]
    pub fn limit(&self, started: Instant, timeout: Duration) -> Duration {
        self.expires_at.map_or(timeout, |at| {
            timeout.min(at.saturating_duration_since(started))
        })
    }

    /// How the request travels upstream.
    #[must_use]
    pub fn forwarding(&self) -> Forwarding {
        match &self.caller.credential {
            Credential::Anonymous | Credential::Token(_) => Forwarding::AsCaller,
            Credential::Certificate(_) | Credential::FrontProxy(_) => Forwarding::Impersonating {
                caller: (*self.caller).clone(),
                lease: self.lease.clone(),
            },
        }
    }
}

/// When a caller's credential expires, by a clock that nobody sets; `None` if that is not known, or too far away to matter.
#[must_use]
pub fn expiry(caller: &Caller) -> Option<Instant> {
    let left = caller.expires_at?.duration_since(SystemTime::now());
    Instant::now().checked_add(left.unwrap_or_default())
}

/// How long a forwarded request lasts, and so how its client is judged that does not take the answer. The answer has it as an
/// extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardLifetime {
    /// It ends soon. So it does without the extension.
    #[default]
    Short,
    /// Events, until a client or upstream ends it. A client that takes none of those that wait for it is cut.
    Watch,
    /// Whatever a pod or a proxied service has to say. Its client may pause.
    Long,
}

/// How long a request waits for a cache that is being filled before it is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillWait {
    /// It costs upstream little: one object, or a page.
    Short,
    /// It costs upstream as much as filling the cache.
    Long,
}

/// An answer to: what must a read that asks for the latest state have seen?
#[derive(Clone, Debug)]
pub enum Latest {
    /// The cache has reached this version, or will: wait for it.
    At(ResourceVersion),
    /// The cache's state was compared and found equal to the state at this later version.
    Proven(Arc<Snapshot>, ResourceVersion),
    /// It cannot be told: upstream must answer.
    Unknown,
}

/// One answered request, for counting.
#[derive(Clone, Copy, Debug)]
pub struct RequestOutcome<'a> {
    /// The cache that was asked, or would have been.
    pub key: &'a CacheKey,
    /// What was asked.
    pub verb: Verb,
    /// HTTP status.
    pub code: u16,
}

/// Told of each list that has left, whole or in part.
pub trait ListRecorder: Send + Sync + std::fmt::Debug {
    /// So many objects went out, the last of them so long after the request.
    fn listed(&self, objects: usize, took: Duration);

    /// It was compressed, of so many blocks.
    fn compressed(&self, blocks: BlockCounts);
}

/// The caches and the way upstream. The gateway has one, the embedded API server another.
pub trait Resources: Send + Sync + 'static {
    /// Body of answers that come from elsewhere.
    type Forwarded: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Which of upstream's gates are open.
    fn gates(&self) -> Gates {
        Gates::default()
    }

    /// Whether a request with these headers is upstream's to answer, whatever it reads. Asked only where callers are not told
    /// apart: memory does not judge who asks.
    fn must_forward(&self, _: &HeaderMap) -> bool {
        false
    }

    /// Whether memory may have to do with this resource at all. Whoever asks for another one need not be known here: upstream
    /// decides what it gets. Costs nothing.
    fn may_serve(&self, _: &Gvr) -> bool {
        true
    }

    /// The cache of this key; starts it if need be, and waits for a while until it is filled. What is forwarded instead counts
    /// among what this peer may have forwarded.
    fn availability(
        &self,
        key: &CacheKey,
        wait: FillWait,
        peer: Peer,
    ) -> impl Future<Output = Availability> + Send;

    /// The right to have a watch forwarded that begins before the history of its ready cache. There is one while clients may still
    /// come with the versions of lists that were forwarded because the cache was being filled.
    fn before_history(&self, _: &CacheKey, _: Peer) -> Option<ForwardPermit> {
        None
    }

    /// Whether a client may have this version of a resource without a cache from a history that upstream no longer has.
    fn may_be_lost(&self, _: &CacheKey, _: ResourceVersion) -> bool {
        false
    }

    /// What a consistent read of the resource must have seen. Costs upstream one small request, shared by all
    /// who ask meanwhile.
    fn latest(&self, served: &ServedResource) -> impl Future<Output = Latest> + Send;

    /// Answers a request that is not answered from memory. See [`ForwardLifetime`]. Where callers are told apart, its [`Forwarding`] is an
    /// extension of the request, and so is its [`Permission`] if it was authorized.
    fn forward(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Forwarded>> + Send;

    /// Where the streams of a resource are counted.
    fn tally(&self, key: &CacheKey) -> Arc<dyn WatchRecorder>;

    /// Where the lists of a resource are counted, if anywhere.
    fn list_tally(&self, _: &CacheKey) -> Option<Arc<dyn ListRecorder>> {
        None
    }

    /// Where connections and bad requests are counted, if anywhere.
    fn listener_metrics(&self) -> Option<&ListenerMetrics> {
        None
    }

    /// Told of each request for a known resource that was answered, by memory or by upstream.
    fn answered(&self, answered: RequestOutcome<'_>);
}
