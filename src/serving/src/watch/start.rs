//! Where a watch starts, and how long it lasts.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cache::{CatchUp, Sequence, Snapshot};
use crate::resource::ResourceVersion;
use crate::view::Marker;

/// Where a watch starts.
#[derive(Debug)]
pub enum Start {
    /// With the matching objects of the snapshot as ADDED events, then the events that follow. `version` is the version that the
    /// client has then: the snapshot's own, or a later one at which it was proven unchanged.
    Initial {
        /// The state to send.
        snapshot: Arc<Snapshot>,
        /// The version that the state represents.
        version: ResourceVersion,
        /// Whether a bookmark marks the end of the initial events.
        marker: Marker,
    },
    /// With the latest state of what changed since an old version, then the events that follow.
    CatchUp(CatchUp),
    /// With the events from `sequence` on, without those up to `version`.
    After {
        /// The first event to consider.
        sequence: Sequence,
        /// The version that the client has; events up to it are not sent.
        version: ResourceVersion,
    },
}

/// The times of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// When the request arrived at the handler.
    pub started: Instant,
    /// How long the stream lasts at most.
    pub timeout: Duration,
    /// Whether the client allows bookmarks.
    pub bookmarks: bool,
}
