//! What a reflector decides: the next action, and the effect of an input.

use std::time::Instant;

use strum::{IntoStaticStr, VariantArray};

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
    /// Request a page. Report `ListPage` or `ListFailed`.
    List {
        /// Freshness. Left out of the request if there is a token, which implies its own.
        resource_version: ListVersion,
        /// `continue` of the previous page; `None` for the first page.
        continue_token: Option<String>,
        /// `limit`; `None` for everything at once.
        limit: Option<u32>,
        /// Why initial data is requested.
        reason: RelistReason,
    },
    /// Watch with `sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true`.
    /// Report as for `Watch`. [`ListVersion::AtLeast`] and [`ListVersion::Latest`] differ in `resourceVersion` only.
    WatchList {
        /// Freshness of the initial events.
        resource_version: ListVersion,
        /// Why initial data is requested.
        reason: RelistReason,
    },
    /// Watch with `allowWatchBookmarks=true` from a version on. Report `WatchOpened`, then what arrives, then one of
    /// `WatchError`, `WatchEnded` and `WatchFailed`; or `WatchFailed` alone.
    Watch {
        /// The last version that was applied.
        after: ResourceVersion,
    },
    /// Compare the held state with upstream's. Report `Compared`.
    Compare,
    /// Do nothing until then; then ask for the next action.
    WaitUntil(Instant),
    /// Do nothing more: the reflector has stopped.
    Stop(StopReason),
}

/// Why a reflector has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Upstream no longer knows the resource.
    Gone,
    /// Too many failures.
    GivenUp(GiveUp),
}

/// Why all objects are requested; the text is the label in metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[repr(usize)]
pub enum RelistReason {
    /// Nothing is held yet.
    Start,
    /// Upstream no longer has the history after the last version: 410.
    Expired,
    /// The requested version is ahead of upstream: 504 with cause `ResourceVersionTooLarge`, or data older than the held
    /// state.
    VersionAhead,
    /// The pages of a list do not belong together: its token expired, or the pages differ in version.
    PagesExpired,
    /// A streamed list broke off before its end.
    Interrupted,
    /// Upstream does not support streamed lists.
    StreamRefused,
    /// Upstream keeps refusing to watch from the last version.
    WatchRefused,
    /// Frames after the last version cannot be read.
    Unparsable,
    /// Watches from the last version bring nothing, and upstream has another state.
    WatchFailed,
    /// An event came later than one of a newer version.
    Unordered,
}

/// What the driver should do with the input that it has just reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing to do.
    None,
    /// Add the event's object, or the page's items, to the initial data; remove an object that was deleted.
    InitialItem,
    /// Add the page's items, if the input was a page, to the initial data, and replace the held state by it.
    InitialDone {
        /// The version of the new state. Lower than before only if upstream itself went back (a restored backup).
        resource_version: ResourceVersion,
    },
    /// Apply the event to the held state. Leave it out if it is of the held version and repeats an event that was applied.
    Live,
    /// The held state is now at this version; nothing changed.
    Progress {
        /// The version of the bookmark.
        resource_version: ResourceVersion,
    },
    /// The event's version is lower than the held state's. The sink knows whether the state has the change. If not, report
    /// [`Failure::Unordered`](super::Failure::Unordered).
    Late,
    /// Drop the input: its version is lower than the held state's, or it does not belong to the current phase.
    Ignored,
    /// End the watch: it lacks what upstream has, or may lack it.
    EndWatch,
    /// Nothing: a comparison has shown that the held state is upstream's.
    Proven,
    /// Drop the initial data collected so far, and the page if the input was one: reading starts over. The held state
    /// stays.
    Restarted,
    /// Start to collect new initial data. The held state stays until it is replaced.
    Relisting {
        /// What made the held state unusable as a start.
        reason: RelistReason,
    },
}
