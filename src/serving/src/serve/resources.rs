//! The interface between serving and the rest: where caches come from, and where requests go that caches cannot answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::Instant;

use super::client_request::ClientRequest;
use crate::audit::AuditTrail;
use crate::auth::caller::{Caller, Credential};
use crate::auth::guard::Forwarding;
use crate::auth::lease::Lease;
use crate::auth::user::User;
use crate::cache::Snapshot;
pub use crate::fairness::Peer;
use crate::fairness::Permit;
use crate::metrics::ListMetrics;
use crate::protocol::request::Verb;
use crate::protocol::status::Status;
use crate::resource::{CacheKey, Gates, Gvr, ResourceVersion};
use crate::serving_control::SideEnd;
use crate::talkers::Talkers;
use crate::view::ServedResource;
use crate::watch::{WatchRecorder, WatchTable};

/// Whether a resource can be answered from memory.
#[derive(Debug)]
pub enum Availability {
    /// The cache is ready.
    Ready(ServedResource),
    /// The cache is being filled; the client should retry after some seconds (docs/PROTOCOL.md §6.9).
    Filling {
        /// The value of `Retry-After`.
        retry_after_seconds: u32,
    },
    /// Upstream has the resource, but not in this encoding.
    OtherEncoding,
    /// The request has to be forwarded.
    Forwarded(Option<ForwardPermit>),
}

/// The permit to forward a request although a cache would be ready soon. It is held until the response is complete.
#[derive(Clone, Debug)]
pub struct ForwardPermit(Arc<Permit>);

impl ForwardPermit {
    /// The permit itself, to be held until the response is complete.
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

/// The permission to read what the request asks for. If callers are authenticated, nothing shared may be joined without it.
#[derive(Clone, Debug)]
pub struct Permission {
    /// The authenticated caller.
    pub caller: Arc<Caller>,
    /// Is revoked when the caller may no longer read it.
    pub lease: Lease,
    /// When the caller's credential expires.
    pub expires_at: Option<Instant>,
}

impl Permission {
    /// How long a stream that starts at `started` may last, if its own timeout is `timeout`: at most until the credential expires.
    #[must_use]
    pub fn limit(&self, started: Instant, timeout: Duration) -> Duration {
        self.expires_at.map_or(timeout, |at| {
            timeout.min(at.saturating_duration_since(started))
        })
    }

    /// How the request is forwarded.
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

/// When a caller's credential expires, by the monotonic clock; `None` if that is not known, or too far away to represent.
#[must_use]
pub fn expiry(caller: &Caller) -> Option<Instant> {
    let remaining = caller.expires_at?.duration_since(SystemTime::now());
    Instant::now().checked_add(remaining.unwrap_or_default())
}

/// A request that upstream answers.
#[derive(Debug)]
pub struct ForwardRequest {
    /// The request as the client sent it.
    pub request: Box<ClientRequest>,
    /// The caller, and the identity under which the request is sent.
    pub caller: ForwardCaller,
    /// The permit to forward it although a cache would be ready soon.
    pub permit: Option<ForwardPermit>,
    /// Its entry in the audit log, in case that it is answered here after all.
    pub trail: Option<AuditTrail>,
    /// The serving rule that forwards it; `None` if none does.
    pub rule: Option<ForwardRule>,
}

/// A serving rule that forwards a request.
#[derive(Debug, Default)]
pub struct ForwardRule {
    /// What ends a watch when the rules change.
    pub end: Option<SideEnd>,
}

/// The caller of a forwarded request.
#[derive(Clone, Debug)]
pub struct ForwardCaller {
    /// The client whose share of permits pays for the request.
    pub peer: Peer,
    /// Whose identity the request carries; `None` if callers are not authenticated.
    pub forwarding: Option<Forwarding>,
    /// The caller's permission, if the gateway has authorized the request.
    pub permission: Option<Permission>,
    /// The user of its token, if that is known without asking upstream. Only to be shown: upstream decides whose the token is.
    pub token_user: Option<Arc<User>>,
}

/// How long a forwarded request lasts, which decides how long its client may stop reading. It is an extension of the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardLifetime {
    /// The response ends soon. The default for responses without the extension.
    #[default]
    Short,
    /// Events, until the client or upstream ends the stream. A client that stops reading while events wait is disconnected.
    Watch,
    /// A stream of a pod or of a proxied service. Its client may pause.
    Long,
}

/// How long a request waits for a cache that is being filled before it is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillWait {
    /// A short wait: the request costs upstream little, for one object or one page.
    Short,
    /// A long wait: the request costs upstream as much as filling the cache.
    Long,
}

/// What a consistent read must have seen.
#[derive(Clone, Debug)]
pub enum Latest {
    /// The cache has reached this version, or will: wait for it.
    At(ResourceVersion),
    /// This state of the cache was proven to be equal to the state at this later version.
    Proven(Arc<Snapshot>, ResourceVersion),
    /// That is not known, so upstream must answer.
    Unknown,
}

/// What the gateway answers relays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RelayState {
    /// Neither new clients nor those that are here.
    NotReady,
    /// No new clients: those that are here are sent away in an orderly way.
    Draining,
    /// The clients of this part of all nodes, from 0 to 1.
    Open(f64),
}

/// Whether upstream has reached a version that a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionReach {
    /// It has, or no server has given out such a version, or that is not for the gateway to say.
    Reached,
    /// Upstream does not say now.
    Unknown,
    /// Not yet. Either upstream is about to, or the version comes from a history that it has lost.
    Pending,
    /// The version comes from a history that upstream has lost.
    Lost,
}

/// One answered request, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct RequestOutcome<'a> {
    /// The cache that answered, or would have.
    pub key: &'a CacheKey,
    /// The verb of the request.
    pub verb: Verb,
    /// HTTP status code of the response.
    pub code: u16,
}

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response that `serve` does not write.
pub type ForwardedBody = UnsyncBoxBody<Bytes, BoxError>;

/// A future of [`Resources`].
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The caches, and the connection to upstream. The gateway implements it: what answers requests must not know what fills caches.
pub trait Resources: Send + Sync + 'static {
    /// The feature gates that are enabled upstream.
    fn gates(&self) -> Gates {
        Gates::default()
    }

    /// Whether memory may serve this resource at all. Requests for other resources are forwarded without authenticating the caller.
    /// Must be cheap.
    fn may_serve(&self, _: &Gvr) -> bool {
        true
    }

    /// The cache of this key. Starts it if necessary, and waits a limited time until it is filled. A request that is forwarded
    /// instead counts against this peer's share of forwarded requests.
    fn availability<'a>(
        &'a self,
        key: &'a CacheKey,
        wait: FillWait,
        peer: Peer,
    ) -> BoxFuture<'a, Availability>;

    /// The same for a comparison, which takes nothing from clients: it gets no permit, and its waiting tells nothing about the cache.
    fn compared_availability<'a>(
        &'a self,
        key: &'a CacheKey,
        wait: FillWait,
        peer: Peer,
    ) -> BoxFuture<'a, Availability> {
        self.availability(key, wait, peer)
    }

    /// Since when the cache of this key is ready; `None` if it is not.
    fn filled_at(&self, _: &CacheKey) -> Option<Instant> {
        None
    }

    /// A permit to forward a watch that starts before the history of its ready cache. Available while clients may still hold
    /// versions of lists that were forwarded while the cache was being filled.
    fn before_history(&self, _: &CacheKey, _: Peer) -> Option<ForwardPermit> {
        None
    }

    /// Whether a request with this head has been here before, or would come back, because the API server's address leads to this gateway.
    fn has_passed(&self, _: &Uri, _: &HeaderMap) -> bool {
        false
    }

    /// Whether this version of a resource without a cache may come from a history that upstream no longer has.
    fn may_be_lost(&self, _: &CacheKey, _: ResourceVersion) -> bool {
        false
    }

    /// Whether upstream has reached the version that a watch starts from. Costs upstream one small request, which concurrent callers share.
    fn version_reach<'a>(
        &'a self,
        _: &'a CacheKey,
        _: ResourceVersion,
    ) -> BoxFuture<'a, VersionReach> {
        Box::pin(std::future::ready(VersionReach::Reached))
    }

    /// How old the cache of this key may be, if that is more than what clients should accept without being told.
    fn staleness(&self, _: &CacheKey) -> Option<Duration> {
        None
    }

    /// What a consistent read of the resource must have seen. Costs upstream one small request, which concurrent reads share.
    fn latest<'a>(&'a self, served: &'a ServedResource) -> BoxFuture<'a, Latest>;

    /// Forwards a request. The response's lifetime is the extension [`ForwardLifetime`].
    fn forward(&self, request: ForwardRequest) -> BoxFuture<'_, Response<ForwardedBody>>;

    /// Whether clients should come here: all is ready, and no drain has begun.
    fn takes_clients(&self) -> bool {
        false
    }

    /// Whether relays on nodes are to send clients here. Each relay asks every few seconds: must be cheap.
    fn relay(&self) -> RelayState {
        RelayState::NotReady
    }

    /// The caches that can be handed over.
    fn handover_keys(&self) -> Vec<CacheKey> {
        Vec::new()
    }

    /// The state of a cache for another gateway at this address.
    ///
    /// # Errors
    /// The response if the cache is not handed over.
    fn hand_over<'a>(
        &'a self,
        _: &'a CacheKey,
        _: Peer,
    ) -> BoxFuture<'a, Result<Response<ForwardedBody>, Status>> {
        Box::pin(std::future::ready(Err(Status::unknown_resource())))
    }

    /// The recorder of a resource's watches.
    fn tally(&self, key: &CacheKey) -> Arc<dyn WatchRecorder>;

    /// The table of the cache's open watches, if somebody may look at them.
    fn watch_table(&self, _: &CacheKey) -> Option<Arc<WatchTable>> {
        None
    }

    /// Counts what clients ask for and get by their names, if somebody may look at that.
    fn talkers(&self) -> Option<&Arc<Talkers>> {
        None
    }

    /// The metrics of a resource's lists, if there are any.
    fn list_metrics(&self, _: &CacheKey) -> Option<ListMetrics> {
        None
    }

    /// Records a request for a known resource that was answered, from memory or by upstream.
    fn answered(&self, outcome: RequestOutcome<'_>);
}
