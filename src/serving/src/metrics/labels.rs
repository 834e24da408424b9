//! The closed sets of label values that no module below owns. Only values of a [`Label`] can become series.

mod memory;

use strum::{IntoStaticStr, VariantArray};

pub use memory::{MemoryPart, PressureStep};

/// A closed set of values of one label: an enum that derives both of strum's traits.
pub trait Label: VariantArray + Copy + PartialEq + Into<&'static str> {
    /// The value as it appears in a series, and in logs.
    fn as_str(self) -> &'static str {
        self.into()
    }
}

impl<L: VariantArray + Copy + PartialEq + Into<&'static str>> Label for L {}

/// The verb of a client's request, spelled as in the API server's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "UPPERCASE")]
pub enum VerbLabel {
    /// A list.
    List,
    /// A watch.
    Watch,
}

/// How upstream contradicts a cache that it filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Contradiction {
    /// Upstream's newest version is lower than a version that the cache has reached.
    Older,
    /// Upstream lists an object that the cache should hold at that version, but does not.
    Listed,
    /// Upstream lacks an object that the cache holds, and sent no deletion.
    Missing,
    /// Upstream is another cluster.
    Cluster,
}

/// Why a resource has no cache and its requests are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum GiveUpReason {
    /// Upstream does not accept the gateway's credentials (401).
    Unauthorized,
    /// Upstream does not let the gateway list or watch the resource (403).
    Forbidden,
    /// Upstream's responses cannot be parsed.
    Undecodable,
    /// An object is longer than 16 MiB, or than a history may be.
    TooLong,
    /// All streams for the gateway's upstream watches are in use.
    Saturated,
    /// Upstream refuses such requests (400, 405 and similar).
    Refused,
    /// Upstream does not respond, or responds with errors.
    Unavailable,
    /// The process uses more memory than `--memory-max`.
    Memory,
    /// Upstream's history contradicted the cache, or came out of order, twice within minutes.
    WentBack,
    /// The task that fills the cache panicked.
    Panicked,
}

/// A task of the gateway: it runs until the process ends, or as long as the client or watch that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TaskKind {
    /// Serves the admin port.
    Admin,
    /// Watches APIServices.
    ApiServices,
    /// Asks upstream which authorizers it has.
    Authorizers,
    /// Watches pods and service accounts.
    BoundObjects,
    /// Serves one client connection.
    Connection,
    /// Writes events to watches over HTTP/1.1.
    DeliveryWorker,
    /// Repeats the discovery of upstream's resources.
    Discovery,
    /// Checks several API servers.
    Endpoints,
    /// Reloads files that have changed.
    FileReload,
    /// Rechecks the permissions of open streams.
    Guard,
    /// Serves one request over HTTP/2.
    Http2Stream,
    /// Ends caches that have been idle for too long.
    IdleCaches,
    /// Ends log filters whose time is over.
    LogFilter,
    /// Gives up caches when memory is short.
    Memory,
    /// Compares the number of watches with the other gateways'.
    Rebalance,
    /// Watches roles and bindings.
    Roles,
    /// Ends overrides of the serving rules, and moves open watches.
    ServingRules,
    /// Sends spans to a collector.
    SpanExport,
    /// Fetches one list of Tables for all that ask alike.
    TableList,
    /// Reads one shared watch of Tables.
    TableWatch,
}

/// The state of a resource's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum CacheState {
    /// The cache is being filled.
    Filling,
    /// Clients are served from the cache.
    Ready,
    /// Upstream has the resource, but not in this encoding.
    NotOffered,
    /// The cache was given up, for this reason.
    #[strum(transparent)]
    GivenUp(GiveUpReason),
}

impl VariantArray for CacheState {
    const VARIANTS: &'static [Self] = &[
        Self::Filling,
        Self::Ready,
        Self::NotOffered,
        Self::GivenUp(GiveUpReason::Unauthorized),
        Self::GivenUp(GiveUpReason::Forbidden),
        Self::GivenUp(GiveUpReason::Undecodable),
        Self::GivenUp(GiveUpReason::TooLong),
        Self::GivenUp(GiveUpReason::Saturated),
        Self::GivenUp(GiveUpReason::Refused),
        Self::GivenUp(GiveUpReason::Unavailable),
        Self::GivenUp(GiveUpReason::Memory),
        Self::GivenUp(GiveUpReason::WentBack),
        Self::GivenUp(GiveUpReason::Panicked),
    ];
}

const _: () = assert!(
    CacheState::VARIANTS.len() == 3 + GiveUpReason::VARIANTS.len(),
    "each reason is a state"
);

/// What became of the attempt to fill a cache from its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RestoreOutcome {
    /// The cache continues from it.
    Restored,
    /// Upstream no longer has its version, and was listed.
    Expired,
    /// There was none.
    Missing,
    /// It was damaged, too old, or another cluster's.
    Refused,
    /// The attempt ended before upstream had continued from it.
    Abandoned,
}

/// Why a client's watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum WatchEnd {
    /// The watch reached the client's or the gateway's timeout, or the client's credential has expired.
    Timeout,
    /// The client may no longer read the resource.
    Revoked,
    /// The client disconnected.
    ClientGone,
    /// The client had stopped reading.
    Stalled,
    /// The watch fell out of the history and got 410.
    Lagged,
    /// The cache ended, or its resource no longer exists.
    CacheGone,
    /// The gateway shuts down. Recorded in place of `CacheGone` and `ClientGone`, which a drain causes.
    Drain,
    /// The gateway had more watches than the others.
    Rebalance,
    /// All permits were taken, and a client that had fewer watches got its permit.
    Reclaimed,
    /// The serving rules have changed, and upstream answers the client now.
    SwitchOver,
}

/// Why a request was refused because of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AuthRefusal {
    /// 401: no valid credential.
    Unauthorized,
    /// 403: the caller is not allowed to do this, or to impersonate this user.
    Forbidden,
    /// 500: the caller's permissions could not be determined. 400: its impersonation headers are invalid. 429: too many callers wait for a
    /// review, or the caller of a watch that resumes cannot be reviewed now.
    Failed,
}

/// Why a client connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ConnectionFailure {
    /// The system could not accept it, for example because no file descriptors were left.
    Accept,
    /// The TLS handshake failed or took too long.
    Handshake,
    /// The client violated the HTTP protocol.
    Protocol,
    /// The first bytes, a request's head or the acknowledgement of a PING did not arrive in time.
    Timeout,
    /// The client flooded the gateway with valid but useless frames: resets, CONTINUATION or tiny frames.
    Flood,
    /// All permits were taken, and a client that had fewer connections got its permit.
    Reclaimed,
}

/// The error in a request that the gateway itself refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum BadRequest {
    /// The head is one that HTTP does not allow, or that the gateway does not accept.
    Http,
    /// It has passed this gateway already.
    Loop,
}

/// Which limit caused a 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LimitLabel {
    /// Too many connections.
    Connections,
    /// Too many lists in the queue.
    Lists,
    /// A list waited too long in the queue.
    ListWait,
    /// Too many watches.
    Watches,
    /// Too much memory in use.
    Memory,
}

/// A kind of permit that clients share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PermitKind {
    /// For connections.
    Connections,
    /// For lists, both running and in the queue.
    Lists,
    /// For watches.
    Watches,
    /// For short forwarded requests.
    ForwardedRequests,
    /// For forwarded watches, logs and other long requests.
    ForwardedWatches,
    /// For upgraded connections.
    Tunnels,
}

/// Why a request could not be forwarded, or its response failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PassthroughError {
    /// The connection to upstream could not be established.
    Connect,
    /// Upstream did not respond in time.
    Timeout,
    /// The connection was lost before the response was complete.
    Broken,
    /// The request is not allowed to be forwarded in this form.
    Refused,
    /// Too many requests are being forwarded, for all clients or for this one.
    Saturated,
    /// The gateway ended the response: the caller's credential expired, its permission was revoked, or the time limit was reached.
    Ended,
}

/// Whether an audit event was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AuditEvents {
    /// The event was written.
    Written,
    /// The event was lost: the queue was full, or the gateway ended before the event could be written.
    Dropped,
}
