//! Closed sets of label values. A value that is not here cannot become a series.

use crate::fairness::Shortage;

/// A closed set of values of one label.
pub trait Label: Copy + PartialEq + 'static {
    /// Every value, each once.
    const ALL: &'static [Self];

    /// The value as it stands in a series.
    fn as_str(self) -> &'static str;
}

/// What a client asks of a cached resource; written as the API server writes verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbLabel {
    /// A full read.
    List,
    /// An open stream.
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

/// Why a resource is listed again upstream: the reflector's reasons, but for the first list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelistLabel {
    /// Upstream no longer has our resource version (410).
    Expired,
    /// Our resource version is ahead of upstream.
    VersionAhead,
    /// A list's pages no longer belonged together.
    PagesExpired,
    /// A streamed list broke off before its end.
    Interrupted,
    /// Upstream does not stream lists.
    StreamRefused,
    /// Upstream keeps refusing to watch from our version.
    WatchRefused,
    /// A frame could not be read, so what it said is unknown.
    Unparsable,
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
        }
    }
}

/// How upstream contradicts a cache that it filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// Its newest version is lower than one that the cache had reached before.
    Older,
    /// It lists an object that the cache must hold at that version, and does not.
    Listed,
    /// It lacks an object that the cache holds, and told of no deletion.
    Missing,
    /// It is another cluster.
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
    /// Upstream ended it in order, as it does every few minutes.
    Closed,
    /// The connection was lost, or went silent.
    Disconnected,
    /// An ERROR event, or an answer that is no stream.
    Error,
    /// A frame could not be read.
    Undecodable,
    /// The cache was ended: nobody needs it, it was given up, or upstream no longer has the resource.
    Idle,
    /// The process ends.
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
    /// What upstream sends cannot be read.
    Undecodable,
    /// An object is longer than `--frame-len-max`.
    TooLong,
    /// All places for the gateway's watches upstream are taken.
    Saturated,
    /// Upstream refuses these requests as such (400, 405 and the like).
    Refused,
    /// Upstream does not answer, or answers with errors.
    Unavailable,
    /// The process has more memory than `--memory-max`.
    Memory,
    /// Upstream's history was replaced twice within minutes.
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

/// A task of the gateway: one that has no end but the process's, or one that ends with the client or the watch that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// The port of metrics and health.
    Admin,
    /// Serves one connection of a client.
    Connection,
    /// Brings events to watches over HTTP/1.1.
    DeliveryWorker,
    /// Reads again what upstream offers.
    Discovery,
    /// Reads files again that have changed.
    FileReload,
    /// Asks again whether clients may go on watching.
    Guard,
    /// Serves one request over HTTP/2.
    Http2Stream,
    /// Ends caches that nobody wants.
    IdleCaches,
    /// Gives up caches where memory is short.
    Memory,
    /// Follows roles and bindings.
    Roles,
    /// Follows one shared watch of tables.
    TableWatch,
}

impl Label for TaskKind {
    const ALL: &'static [Self] = &[
        Self::Admin,
        Self::Connection,
        Self::DeliveryWorker,
        Self::Discovery,
        Self::FileReload,
        Self::Guard,
        Self::Http2Stream,
        Self::IdleCaches,
        Self::Memory,
        Self::Roles,
        Self::TableWatch,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Connection => "connection",
            Self::DeliveryWorker => "delivery_worker",
            Self::Discovery => "discovery",
            Self::FileReload => "file_reload",
            Self::Guard => "guard",
            Self::Http2Stream => "http2_stream",
            Self::IdleCaches => "idle_caches",
            Self::Memory => "memory",
            Self::Roles => "roles",
            Self::TableWatch => "table_watch",
        }
    }
}

/// What a resource's cache is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheState {
    /// It is being filled.
    Filling,
    /// Clients are served from it.
    Ready,
    /// Upstream has the resource, but not in this encoding.
    NotOffered,
    /// There is none, for this reason.
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

/// Why a frame from upstream was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRejectionLabel {
    /// Longer than the limit.
    TooLong,
    /// Not a watch event, or one whose object has no name or resource version.
    Malformed,
    /// An answer that is no JSON, or a `Table`.
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
    /// The time that the client asked for, or that we allow, was over, or its credential has expired.
    Timeout,
    /// The client may no longer read the resource.
    Revoked,
    /// The client went away.
    ClientGone,
    /// The client fell out of the ring and was told to list again.
    Lagged,
    /// The cache ended, or its resource is gone.
    CacheGone,
    /// The process ends.
    Drain,
}

impl Label for ClientWatchEnd {
    const ALL: &'static [Self] = &[
        Self::Timeout,
        Self::Revoked,
        Self::ClientGone,
        Self::Lagged,
        Self::CacheGone,
        Self::Drain,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Revoked => "revoked",
            Self::ClientGone => "client_gone",
            Self::Lagged => "lagged",
            Self::CacheGone => "cache_gone",
            Self::Drain => "drain",
        }
    }
}

/// Why a request was refused for who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthRefusal {
    /// 401: no credential that counts.
    Unauthorized,
    /// 403: the caller may not do this, or may not impersonate whom it wants to be.
    Forbidden,
    /// 500: it cannot be found out what the caller may do, or its headers make no sense.
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

/// Why a connection of a client came to nothing, or to a bad end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionFailure {
    /// The system did not hand it over: no descriptors left, for one.
    Accept,
    /// The TLS handshake failed or took too long.
    Handshake,
    /// The client broke the rules of HTTP.
    Protocol,
    /// Its first bytes, a request's head or the answer to a ping did not come in time.
    Timeout,
    /// It kept to the rules and used them to make work: resets, continuations or tiny frames without end.
    Flood,
}

impl Label for ConnectionFailure {
    const ALL: &'static [Self] = &[
        Self::Accept,
        Self::Handshake,
        Self::Protocol,
        Self::Timeout,
        Self::Flood,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Handshake => "handshake",
            Self::Protocol => "protocol",
            Self::Timeout => "timeout",
            Self::Flood => "flood",
        }
    }
}

/// What was wrong with a request that the gateway refused by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// A parameter that cannot be read, or does not go with another.
    Parameter,
    /// A selector that cannot be read, or a field that cannot be selected by.
    Selector,
    /// A resource version that is none.
    ResourceVersion,
    /// A continue token that is not ours, or too old.
    ContinueToken,
    /// A path that cannot be read.
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

/// Of what there was too much when a client was sent away with 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitLabel {
    /// Connections.
    Connections,
    /// Lists in line for a place.
    Lists,
    /// The time that a list has waited for one.
    ListWait,
    /// Watches.
    Watches,
    /// Memory in use.
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

/// Places that clients share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitKind {
    /// For connections.
    Connections,
    /// For lists, or for waiting for one of these.
    Lists,
    /// For watches.
    Watches,
    /// For forwarded requests that end soon.
    ForwardedRequests,
    /// For forwarded watches, logs and the like.
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

/// Why a request could not be forwarded, or its answer not be brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassthroughError {
    /// No connection to upstream.
    Connect,
    /// Upstream took too long.
    Timeout,
    /// The connection broke in the middle.
    Broken,
    /// The request may not be forwarded as it is.
    Refused,
    /// Too much is being forwarded, for all clients or for one.
    Saturated,
    /// The gateway cut it: its caller's credential or permission had ended, or its time was over.
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

/// What became of an audit event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEvents {
    /// It was written.
    Written,
    /// It was not: the queue was full, or the gateway ended before it could be written.
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
