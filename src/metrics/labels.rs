//! Closed sets of label values. A value that is not here cannot become a series.

/// A closed set of values of one label.
pub trait Label: Copy + PartialEq + 'static {
    /// Every value, each once.
    const ALL: &'static [Self];

    /// The value as it stands in a series.
    fn as_str(self) -> &'static str;
}

/// What a client asks of a cached resource; written as the API server writes verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A full read.
    List,
    /// An open stream.
    Watch,
}

impl Label for Verb {
    const ALL: &'static [Self] = &[Self::List, Self::Watch];

    fn as_str(self) -> &'static str {
        match self {
            Self::List => "LIST",
            Self::Watch => "WATCH",
        }
    }
}

/// Why a resource is listed again upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelistReason {
    /// Upstream no longer has our resource version (410).
    Expired,
    /// Versions did not increase, or the stream contradicted our state.
    Inconsistent,
    /// A frame could not be read, so what it said is unknown.
    Undecodable,
    /// Upstream refused to watch from our version for another reason.
    Refused,
}

impl Label for RelistReason {
    const ALL: &'static [Self] = &[
        Self::Expired,
        Self::Inconsistent,
        Self::Undecodable,
        Self::Refused,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Inconsistent => "inconsistent",
            Self::Undecodable => "undecodable",
            Self::Refused => "refused",
        }
    }
}

/// Why an upstream watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// Upstream ended it in order, as it does every few minutes.
    Closed,
    /// The connection was lost.
    Disconnected,
    /// An ERROR event, or an answer that is no stream.
    Error,
    /// A frame could not be read.
    Undecodable,
    /// Nothing came for longer than bookmarks may be apart.
    Stalled,
    /// No client needs the resource any more.
    Idle,
    /// The process ends.
    Drain,
}

impl Label for WatchEnd {
    const ALL: &'static [Self] = &[
        Self::Closed,
        Self::Disconnected,
        Self::Error,
        Self::Undecodable,
        Self::Stalled,
        Self::Idle,
        Self::Drain,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Disconnected => "disconnected",
            Self::Error => "error",
            Self::Undecodable => "undecodable",
            Self::Stalled => "stalled",
            Self::Idle => "idle",
            Self::Drain => "drain",
        }
    }
}

/// Why a frame from upstream was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRejection {
    /// Longer than the limit.
    TooLong,
    /// Not well-formed.
    Malformed,
    /// A type of event that the protocol does not have.
    UnknownType,
    /// An object without name or resource version.
    Incomplete,
}

impl Label for FrameRejection {
    const ALL: &'static [Self] = &[
        Self::TooLong,
        Self::Malformed,
        Self::UnknownType,
        Self::Incomplete,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::UnknownType => "unknown_type",
            Self::Incomplete => "incomplete",
        }
    }
}

/// Why a client's watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The time that the client asked for, or that we allow, was over.
    Timeout,
    /// The client went away.
    ClientGone,
    /// The client fell out of the ring and was told to list again.
    Lagged,
    /// History became uncertain upstream, and the client was told to list again.
    Expired,
    /// The client took nothing for too long.
    Stalled,
    /// The cache ended, or its resource is gone.
    CacheGone,
    /// The caller may no longer see it.
    Revoked,
    /// The process ends.
    Drain,
}

impl Label for StreamEnd {
    const ALL: &'static [Self] = &[
        Self::Timeout,
        Self::ClientGone,
        Self::Lagged,
        Self::Expired,
        Self::Stalled,
        Self::CacheGone,
        Self::Revoked,
        Self::Drain,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::ClientGone => "client_gone",
            Self::Lagged => "lagged",
            Self::Expired => "expired",
            Self::Stalled => "stalled",
            Self::CacheGone => "cache_gone",
            Self::Revoked => "revoked",
            Self::Drain => "drain",
        }
    }
}

/// Why a request was refused before anything was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// A parameter that cannot be read.
    Parameter,
    /// A selector that cannot be read, or a field that cannot be selected by.
    Selector,
    /// A resource version that is none, or that contradicts its match.
    ResourceVersion,
    /// A continue token that is not ours, or too old.
    ContinueToken,
    /// No encoding that the client takes.
    NotAcceptable,
    /// Head or target longer than the limit, or not HTTP.
    Http,
}

impl Label for BadRequest {
    const ALL: &'static [Self] = &[
        Self::Parameter,
        Self::Selector,
        Self::ResourceVersion,
        Self::ContinueToken,
        Self::NotAcceptable,
        Self::Http,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Selector => "selector",
            Self::ResourceVersion => "resource_version",
            Self::ContinueToken => "continue_token",
            Self::NotAcceptable => "not_acceptable",
            Self::Http => "http",
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
}

impl Label for PassthroughError {
    const ALL: &'static [Self] = &[Self::Connect, Self::Timeout, Self::Broken, Self::Refused];

    fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::Refused => "refused",
        }
    }
}
