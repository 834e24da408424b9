//! What a reflector is told: what came of its last decision.

use crate::decode::UpstreamStatus;
use crate::resource::{EventKind, ResourceVersion};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A page came.
    ListPage {
        /// `metadata.resourceVersion`.
        resource_version: ResourceVersion,
        /// `metadata.continue`; empty on the last page.
        continue_token: String,
    },
    /// No page came.
    ListFailed(Failure),
    /// Upstream answered 200 to a watch.
    WatchOpened,
    /// An object's event came.
    Event {
        /// What happened.
        kind: EventKind,
        /// The object's version.
        resource_version: ResourceVersion,
    },
    /// A version-only event came.
    Bookmark {
        /// Its version.
        resource_version: ResourceVersion,
        /// Whether it closes a streamed list.
        initial_events_end: bool,
    },
    /// An ERROR event came; the watch is over.
    WatchError(UpstreamStatus),
    /// The watch ended cleanly, between two frames.
    WatchEnded,
    /// The watch did not open, or broke off.
    WatchFailed(Failure),
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Upstream answered with an HTTP error; its `Retry-After` stands in the status.
    Status(UpstreamStatus),
    /// No connection, or cut: reset, timeout, end of stream within a frame.
    Transport,
    /// What came cannot be read.
    Protocol,
    /// What came is longer than allowed.
    TooLong,
    /// Not sent: all places for requests upstream are taken.
    Saturated,
}

impl Input {
    /// The failure that it tells of, if it does.
    pub(super) fn failure(&self) -> Option<Failure> {
        match self {
            Self::ListFailed(failure) | Self::WatchFailed(failure) => Some(failure.clone()),
            Self::WatchError(status) => Some(Failure::Status(status.clone())),
            Self::ListPage { .. }
            | Self::WatchOpened
            | Self::Event { .. }
            | Self::Bookmark { .. }
            | Self::WatchEnded => None,
        }
    }
}

/// What a failure asks for, the same for lists and watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Ask for the latest version: history is gone.
    Relist,
    /// Ask for the latest version: the one asked for is not there yet.
    RelistAhead,
    /// The resource is not known; perhaps not yet.
    NotFound,
    /// The same again, later: overload, restart, credentials in rotation.
    Again,
    /// Upstream failed inside (500), which for streamed lists may mean that it cannot do them.
    Inside,
    /// The request is refused as such.
    Refused,
    /// The connection failed.
    Reconnect,
    /// The bytes cannot be read.
    Unreadable,
}

impl Failure {
    /// How long upstream asks to wait, in seconds.
    pub(super) const fn retry_after_seconds(&self) -> u32 {
        match self {
            Self::Status(status) => match status.retry_after_seconds {
                Some(seconds) => seconds,
                None => 0,
            },
            Self::Transport | Self::Protocol | Self::TooLong | Self::Saturated => 0,
        }
    }

    pub(super) fn remedy(&self) -> Remedy {
        let status = match self {
            Self::Status(status) => status,
            Self::Transport => return Remedy::Reconnect,
            Self::Protocol | Self::TooLong => return Remedy::Unreadable,
            Self::Saturated => return Remedy::Again,
        };
        match status.code {
            _ if status.is_expired() => Remedy::Relist,
            _ if status.version_too_large => Remedy::RelistAhead,
            404 => Remedy::NotFound,
            // 408 is what proxies say of slow connections; 425 belongs to TLS early data.
            401 | 403 | 408 | 425 | 429 => Remedy::Again,
            500 if status.retry_after_seconds.is_none() => Remedy::Inside,
            code if code >= 500 => Remedy::Again,
            _ => Remedy::Refused,
        }
    }
}
