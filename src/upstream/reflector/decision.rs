//! What a reflector decides: what to do next, and what to do with what has come.

use std::time::Instant;

use super::give_up::GiveUp;
use crate::resource::ResourceVersion;

/// How fresh a list must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListVersion {
    /// `resourceVersion=0`: whatever upstream's cache holds.
    Any,
    /// No `resourceVersion`: consistent.
    Latest,
    /// This version with `resourceVersionMatch=NotOlderThan`.
    AtLeast(ResourceVersion),
}

/// What the driver should do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for a page; answer with `ListPage` or `ListFailed`.
    List {
        /// Freshness; to be left out of the request where there is a token, which has its own.
        resource_version: ListVersion,
        /// `continue` of the page before; absent for the first page.
        continue_token: Option<String>,
        /// `limit`; absent for everything at once.
        limit: Option<u32>,
        /// Why initial data is asked for.
        reason: RelistReason,
    },
    /// Watch with `sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true`.
    /// Answer as for `Watch`. [`ListVersion::AtLeast`] and [`ListVersion::Latest`] differ in `resourceVersion` only.
    WatchList {
        /// Freshness of the initial events.
        resource_version: ListVersion,
        /// Why initial data is asked for.
        reason: RelistReason,
    },
    /// Watch with `allowWatchBookmarks=true` from a version on. Answer with `WatchOpened`, then what comes, then one of
    /// `WatchError`, `WatchEnded` and `WatchFailed`; or with `WatchFailed` alone.
    Watch {
        /// The last version that was applied.
        after: ResourceVersion,
    },
    /// Do nothing until then, and ask again.
    WaitUntil(Instant),
    /// Give up.
    Stop(StopReason),
}

/// Why a reflector gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Upstream no longer knows the resource.
    Gone,
    /// Too many failures.
    GivenUp(GiveUp),
}

/// Why all objects are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum RelistReason {
    /// Nothing is held yet.
    Start,
    /// Upstream forgot the history after the last version: 410.
    Expired,
    /// The version asked for is ahead of upstream: 504 with cause `ResourceVersionTooLarge`, or an answer older than what is held.
    VersionAhead,
    /// A list's pages no longer belong together: its token expired, or pages differ in version.
    PagesExpired,
    /// A streamed list broke off before its end.
    Interrupted,
    /// Upstream does not stream lists.
    StreamRefused,
    /// Upstream keeps refusing to watch from the last version.
    WatchRefused,
    /// Frames after the last version cannot be read.
    Unparsable,
}

impl RelistReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Start,
        Self::Expired,
        Self::VersionAhead,
        Self::PagesExpired,
        Self::Interrupted,
        Self::StreamRefused,
        Self::WatchRefused,
        Self::Unparsable,
    ];

    /// The word for metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
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

/// What the driver should do with what it has just told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Apply the event, or the page's items, to the side buffer.
    InitialItem,
    /// Add the page's items, if it was a page, to the side buffer, and put it in place of the held state.
    InitialDone {
        /// The version of the new state. Lower than before only if upstream itself went back (a restored backup).
        resource_version: ResourceVersion,
    },
    /// Apply the event to the held state; leave it out if it is of the held version and repeats what was applied.
    Live,
    /// The held state stands at this version; nothing changed.
    Progress {
        /// The version of the bookmark.
        resource_version: ResourceVersion,
    },
    /// Drop the event: its version is not beyond the held state's.
    Ignored,
    /// Drop the side buffer, and the page if it was one; initial data begins again. The held state stays.
    Restarted,
    /// The held state stays as it is until new initial data replaces it; begin an empty side buffer.
    Relisting {
        /// Why.
        reason: RelistReason,
    },
}
