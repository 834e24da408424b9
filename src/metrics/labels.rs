//! The closed sets of label values. No other values can become series.

mod memory;

use crate::fairness::Shortage;
pub use memory::{MemoryPart, PressureStep};

/// A closed set of values of one label.
pub trait Label: Copy + PartialEq + 'static {
    /// Every value, exactly once.
    const ALL: &'static [Self];

    /// The value as it appears in a series.
    fn as_str(self) -> &'static str;
}

/// The verb of a client's request, spelled as in the API server's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbLabel {
    /// A list.
    List,
    /// A watch.
    Watch,
}

impl Label for VerbLabel {
    const ALL: &'static [Self] = &[Self::List, Self::Watch];

    fn as_str(self) -> &'static str {
        match self {
            Self::List => "LIST",
            Self::Watch => "WATCH",
        }
    }
}

/// Why a resource is listed again upstream: the reflector's reasons, except for the first list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelistLabel {
    /// Upstream no longer has the gateway's resource version (410).
    Expired,
    /// The gateway's resource version is ahead of upstream.
    VersionAhead,
    /// The continue token of a paged list has expired.
    PagesExpired,
    /// A streamed list was interrupted.
    Interrupted,
    /// Upstream does not support streamed lists.
    StreamRefused,
    /// Upstream keeps refusing to watch from the gateway's version.
    WatchRefused,
    /// A frame could not be parsed, so an event is unknown.
    Unparsable,
    /// Watches bring nothing, and upstream has another state.
    WatchFailed,
    /// An event came later than one of a newer version.
    Unordered,
}

impl Label for RelistLabel {
    const ALL: &'static [Self] = &[
        Self::Expired,
        Self::VersionAhead,
        Self::PagesExpired,
        Self::Interrupted,
        Self::StreamRefused,
        Self::WatchRefused,
        Self::Unparsable,
        Self::WatchFailed,
        Self::Unordered,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::VersionAhead => "version_ahead",
            Self::PagesExpired => "pages_expired",
            Self::Interrupted => "interrupted",
            Self::StreamRefused => "stream_refused",
            Self::WatchRefused => "watch_refused",
            Self::Unparsable => "unparsable",
            Self::WatchFailed => "watch_failed",
            Self::Unordered => "unordered",
        }
    }
}

/// How upstream contradicts a cache that it filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Label for Contradiction {
    const ALL: &'static [Self] = &[Self::Older, Self::Listed, Self::Missing, Self::Cluster];

    fn as_str(self) -> &'static str {
        match self {
            Self::Older => "older",
            Self::Listed => "listed",
            Self::Missing => "missing",
            Self::Cluster => "cluster",
        }
    }
}

/// Why an upstream watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamWatchEnd {
    /// Upstream ended it cleanly, as it does every few minutes.
    Closed,
    /// The connection was lost, or was silent for too long.
    Disconnected,
    /// Upstream sent an ERROR event, or a response that is not a stream.
    Error,
    /// A frame could not be parsed.
    Undecodable,
    /// The cache ended: it was idle, it was given up, or upstream no longer has the resource.
    Idle,
    /// The gateway shuts down.
    Drain,
}

impl Label for UpstreamWatchEnd {
    const ALL: &'static [Self] = &[
        Self::Closed,
        Self::Disconnected,
        Self::Error,
        Self::Undecodable,
        Self::Idle,
        Self::Drain,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Disconnected => "disconnected",
            Self::Error => "error",
            Self::Undecodable => "undecodable",
            Self::Idle => "idle",
            Self::Drain => "drain",
        }
    }
}

/// Why a resource has no cache and its requests are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// Upstream does not accept the gateway's credentials (401).
    Unauthorized,
    /// Upstream does not let the gateway list or watch the resource (403).
    Forbidden,
    /// Upstream's responses cannot be parsed.
    Undecodable,
    /// An object is longer than `--frame-len-max`.
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

impl Label for GiveUpReason {
    const ALL: &'static [Self] = &[
        Self::Unauthorized,
        Self::Forbidden,
        Self::Undecodable,
        Self::TooLong,
        Self::Saturated,
        Self::Refused,
        Self::Unavailable,
        Self::Memory,
        Self::WentBack,
        Self::Panicked,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Undecodable => "undecodable",
            Self::TooLong => "too_long",
            Self::Saturated => "saturated",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Memory => "memory",
            Self::WentBack => "went_back",
            Self::Panicked => "panicked",
        }
    }
}

/// A task of the gateway: it runs until the process ends, or as long as the client or watch that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Serves the admin port.
    Admin,
    /// Watches APIServices.
    ApiServices,
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
    /// Checks the permissions of open streams again.
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
    /// Sends spans to a collector.
    SpanExport,
    /// Reads one shared watch of Tables.
    TableWatch,
}

impl Label for TaskKind {
    const ALL: &'static [Self] = &[
        Self::Admin,
        Self::ApiServices,
        Self::Connection,
        Self::DeliveryWorker,
        Self::Discovery,
        Self::Endpoints,
        Self::FileReload,
        Self::Guard,
        Self::Http2Stream,
        Self::IdleCaches,
        Self::LogFilter,
        Self::Memory,
        Self::Rebalance,
        Self::Roles,
        Self::SpanExport,
        Self::TableWatch,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ApiServices => "api_services",
            Self::Connection => "connection",
            Self::DeliveryWorker => "delivery_worker",
            Self::Discovery => "discovery",
            Self::Endpoints => "endpoints",
            Self::FileReload => "file_reload",
            Self::Guard => "guard",
            Self::Http2Stream => "http2_stream",
            Self::IdleCaches => "idle_caches",
            Self::LogFilter => "log_filter",
            Self::Memory => "memory",
            Self::Rebalance => "rebalance",
            Self::Roles => "roles",
            Self::SpanExport => "span_export",
            Self::TableWatch => "table_watch",
        }
    }
}

/// The state of a resource's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheState {
    /// The cache is being filled.
    Filling,
    /// Clients are served from the cache.
    Ready,
    /// Upstream has the resource, but not in this encoding.
    NotOffered,
    /// The cache was given up, for this reason.
    GivenUp(GiveUpReason),
}

impl Label for CacheState {
    const ALL: &'static [Self] = &[
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

    fn as_str(self) -> &'static str {
        match self {
            Self::Filling => "filling",
            Self::Ready => "ready",
            Self::NotOffered => "not_offered",
            Self::GivenUp(reason) => reason.as_str(),
        }
    }
}

/// What became of the attempt to fill a cache from its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Label for RestoreOutcome {
    const ALL: &'static [Self] = &[
        Self::Restored,
        Self::Expired,
        Self::Missing,
        Self::Refused,
        Self::Abandoned,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Restored => "restored",
            Self::Expired => "expired",
            Self::Missing => "missing",
            Self::Refused => "refused",
            Self::Abandoned => "abandoned",
        }
    }
}

/// Why a frame from upstream was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRejectionLabel {
    /// The frame is longer than `--frame-len-max`.
    TooLong,
    /// The frame is not a watch event, or its object has no name or resource version.
    Malformed,
    /// The response has another content type than the requested one, or is a `Table`.
    WrongContentType,
}

impl Label for FrameRejectionLabel {
    const ALL: &'static [Self] = &[Self::TooLong, Self::Malformed, Self::WrongContentType];

    fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::WrongContentType => "wrong_content_type",
        }
    }
}

/// Why a client's watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientWatchEnd {
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
    /// The gateway shuts down.
    Drain,
    /// The gateway had more watches than the others.
    Rebalance,
    /// All permits were taken, and a client that had fewer watches got its permit.
    Reclaimed,
}

impl Label for ClientWatchEnd {
    const ALL: &'static [Self] = &[
        Self::Timeout,
        Self::Revoked,
        Self::ClientGone,
        Self::Stalled,
        Self::Lagged,
        Self::CacheGone,
        Self::Drain,
        Self::Rebalance,
        Self::Reclaimed,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Revoked => "revoked",
            Self::ClientGone => "client_gone",
            Self::Stalled => "stalled",
            Self::Lagged => "lagged",
            Self::CacheGone => "cache_gone",
            Self::Drain => "drain",
            Self::Rebalance => "rebalance",
            Self::Reclaimed => "reclaimed",
        }
    }
}

/// Why a request was refused because of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthRefusal {
    /// 401: no valid credential.
    Unauthorized,
    /// 403: the caller is not allowed to do this, or to impersonate this user.
    Forbidden,
    /// 500: the caller's permissions could not be determined, or its impersonation headers are invalid. 429 to a watch that resumes.
    Failed,
}

impl Label for AuthRefusal {
    const ALL: &'static [Self] = &[Self::Unauthorized, Self::Forbidden, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Failed => "failed",
        }
    }
}

/// Why a client connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Label for ConnectionFailure {
    const ALL: &'static [Self] = &[
        Self::Accept,
        Self::Handshake,
        Self::Protocol,
        Self::Timeout,
        Self::Flood,
        Self::Reclaimed,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Handshake => "handshake",
            Self::Protocol => "protocol",
            Self::Timeout => "timeout",
            Self::Flood => "flood",
            Self::Reclaimed => "reclaimed",
        }
    }
}

/// The error in a request that the gateway itself refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// A parameter is invalid, or contradicts another one.
    Parameter,
    /// A selector is invalid, or selects by an unsupported field.
    Selector,
    /// A resource version is invalid.
    ResourceVersion,
    /// A continue token is invalid or has expired.
    ContinueToken,
    /// A path is invalid.
    Http,
}

impl Label for BadRequest {
    const ALL: &'static [Self] = &[
        Self::Parameter,
        Self::Selector,
        Self::ResourceVersion,
        Self::ContinueToken,
        Self::Http,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Selector => "selector",
            Self::ResourceVersion => "resource_version",
            Self::ContinueToken => "continue_token",
            Self::Http => "http",
        }
    }
}

/// Which limit caused a 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Label for LimitLabel {
    const ALL: &'static [Self] = &[
        Self::Connections,
        Self::Lists,
        Self::ListWait,
        Self::Watches,
        Self::Memory,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Lists => "lists",
            Self::ListWait => "list_wait",
            Self::Watches => "watches",
            Self::Memory => "memory",
        }
    }
}

/// A kind of permit that clients share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Label for PermitKind {
    const ALL: &'static [Self] = &[
        Self::Connections,
        Self::Lists,
        Self::Watches,
        Self::ForwardedRequests,
        Self::ForwardedWatches,
        Self::Tunnels,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Lists => "lists",
            Self::Watches => "watches",
            Self::ForwardedRequests => "forwarded_requests",
            Self::ForwardedWatches => "forwarded_watches",
            Self::Tunnels => "tunnels",
        }
    }
}

impl Label for Shortage {
    const ALL: &'static [Self] = &[Self::User, Self::Address, Self::Total];

    fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Address => "address",
            Self::Total => "total",
        }
    }
}

/// Why a request could not be forwarded, or its response failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Label for PassthroughError {
    const ALL: &'static [Self] = &[
        Self::Connect,
        Self::Timeout,
        Self::Broken,
        Self::Refused,
        Self::Saturated,
        Self::Ended,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::Refused => "refused",
            Self::Saturated => "saturated",
            Self::Ended => "ended",
        }
    }
}

/// Whether an audit event was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEvents {
    /// The event was written.
    Written,
    /// The event was lost: the queue was full, or the gateway ended before the event could be written.
    Dropped,
}

impl Label for AuditEvents {
    const ALL: &'static [Self] = &[Self::Written, Self::Dropped];

    fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Dropped => "dropped",
        }
    }
}
