//! The results of actions, as the driver reports them to a reflector, and the remedy for each failure. How often a remedy is tried is
//! decided elsewhere.

use crate::decode::UpstreamStatus;
use crate::resource::{EventKind, ResourceVersion};

/// One result of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A page arrived.
    ListPage {
        /// `metadata.resourceVersion`.
        resource_version: ResourceVersion,
        /// `metadata.continue`; empty on the last page.
        continue_token: String,
    },
    /// The request for a page failed, or the page could not be read.
    ListFailed(Failure),
    /// Upstream accepted a watch (200).
    WatchOpened,
    /// An event of an object arrived.
    Event {
        /// What happened.
        kind: EventKind,
        /// The object's version.
        resource_version: ResourceVersion,
    },
    /// A bookmark arrived.
    Bookmark {
        /// The bookmark's version.
        resource_version: ResourceVersion,
        /// Whether the bookmark ends a streamed list.
        initial_events_end: bool,
    },
    /// An ERROR event arrived, which ends the watch.
    WatchError(UpstreamStatus),
    /// The watch ended cleanly, between two frames.
    WatchEnded,
    /// The watch was refused or broke off.
    WatchFailed(Failure),
    /// The held state was compared with upstream's, while no watch was open or while one was silent.
    Compared(Comparison),
    /// The open watch brings changes far too late.
    Lagging,
}

/// What a comparison of the held state with upstream's has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Upstream has the same objects, each at the same version.
    Equal,
    /// What was read of upstream's state is the same, and nothing says that the rest is not.
    Unrefuted,
    /// Upstream has another state.
    Different,
    /// Upstream's state could not be read. Upstream asks for this wait, in seconds.
    Unknown(u32),
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Upstream responded with an HTTP error. Its `Retry-After` is in the status.
    #[error("upstream answered {} ({})", .0.code, .0.message)]
    Status(UpstreamStatus),
    /// No connection, or the connection failed: reset, timeout, end of the stream within a frame.
    #[error("no response from upstream")]
    Transport,
    /// The response cannot be parsed.
    #[error("upstream's response cannot be read")]
    Protocol,
    /// A part of the response is longer than allowed.
    #[error("upstream's response is too long")]
    TooLong,
    /// Events came in another order than that of their versions.
    #[error("upstream's events are not in the order of their versions")]
    Unordered,
    /// Not sent: all permits for requests upstream are taken.
    #[error("all permits for requests upstream are taken")]
    Saturated,
}

impl Input {
    /// The failure that the input reports, if any.
    pub(super) fn failure(&self) -> Option<Failure> {
        match self {
            Self::ListFailed(failure) | Self::WatchFailed(failure) => Some(failure.clone()),
            Self::WatchError(status) => Some(Failure::Status(status.clone())),
            Self::ListPage { .. }
            | Self::WatchOpened
            | Self::Event { .. }
            | Self::Bookmark { .. }
            | Self::Compared(_)
            | Self::Lagging
            | Self::WatchEnded => None,
        }
    }
}

/// How to react to a failure; the same for lists and watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// List the latest version: the history is gone.
    Relist,
    /// List the latest version: upstream does not have the requested one yet.
    RelistAhead,
    /// The resource is unknown, perhaps because it is new.
    NotFound,
    /// Send the same request later: overload, restart, credentials that are being rotated.
    Again,
    /// Upstream had an internal error (500), which for a streamed list may mean that it does not support them.
    InternalError,
    /// The request itself is refused.
    Refused,
    /// The connection failed.
    Reconnect,
    /// The bytes cannot be read.
    Unreadable,
    /// List the latest version: what the watch has brought may lack something.
    Unordered,
}

impl Failure {
    /// The wait that upstream asks for, in seconds; 0 if it asks for none.
    #[must_use]
    pub const fn retry_after_seconds(&self) -> u32 {
        match self {
            Self::Status(status) => match status.retry_after_seconds {
                Some(seconds) => seconds,
                None => 0,
            },
            Self::Transport
            | Self::Protocol
            | Self::TooLong
            | Self::Unordered
            | Self::Saturated => 0,
        }
    }

    /// The remedy for this failure, by its kind and status alone.
    pub(super) fn remedy(&self) -> Remedy {
        let status = match self {
            Self::Status(status) => status,
            Self::Transport => return Remedy::Reconnect,
            Self::Protocol | Self::TooLong => return Remedy::Unreadable,
            Self::Unordered => return Remedy::Unordered,
            Self::Saturated => return Remedy::Again,
        };
        match status.code {
            _ if status.is_expired() => Remedy::Relist,
            _ if status.version_too_large => Remedy::RelistAhead,
            404 => Remedy::NotFound,
            // Proxies send 408 for slow connections; 425 belongs to TLS early data.
            401 | 403 | 408 | 425 | 429 => Remedy::Again,
            500 if status.retry_after_seconds.is_none() => Remedy::InternalError,
            code if code >= 500 => Remedy::Again,
            _ => Remedy::Refused,
        }
    }
}
