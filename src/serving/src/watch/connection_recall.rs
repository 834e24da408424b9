//! The recall of one connection's watches, and how many are open (decision 52). A watch with bookmarks can be moved: its client resumes at
//! another replica where this one ended. A watch without bookmarks goes on until its own end, so it counts for as long.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::auth::lease::{Lease, LeaseHold};

/// Watches that a recall may end in a second: they resume elsewhere, which costs the other gateways little.
pub const RECALLS_PER_SECOND: u32 = 100;
/// The watches of a connection end within at least this time, so that they do not come back at one moment.
const END_SPREAD_MIN: Duration = Duration::from_secs(2);

/// Number of open watches of many connections, without those that are about to end because of a recall. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct OpenWatchCount(Arc<Mutex<usize>>);

impl OpenWatchCount {
    /// The number now.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.0.lock()
    }

    fn add(&self, watches: usize) {
        *self.0.lock() += watches;
    }

    fn subtract(&self, watches: usize) {
        *self.0.lock() -= watches;
    }
}

/// Ends the watches of one connection. Clones share the connection.
#[derive(Clone, Debug, Default)]
pub struct WatchRecall(Arc<RecallState>);

#[derive(Debug, Default)]
struct RecallState {
    /// Revoked when the watches end; each watch holds it.
    watches: Lease,
    /// Wakes the connection's task, the only one that waits.
    wake: Notify,
    counts: Mutex<RecallCounts>,
    /// The watches of all connections.
    total: OpenWatchCount,
}

/// The watches of one connection.
#[derive(Debug, Default)]
struct RecallCounts {
    /// Watches with bookmarks.
    movable: usize,
    /// In what time they end; `None` before the recall. From then on they are not in the total.
    spread: Option<Duration>,
}

/// A watch's hold on the recall of its connection. The watch counts until it is dropped.
#[derive(Debug)]
pub struct RecallHold {
    lease: LeaseHold,
    recall: WatchRecall,
    is_movable: bool,
}

impl WatchRecall {
    /// The recall of a connection whose watches are part of this number.
    #[must_use]
    pub fn counted(total: &OpenWatchCount) -> Self {
        Self(Arc::new(RecallState {
            total: total.clone(),
            ..RecallState::default()
        }))
    }

    /// Ends each watch with bookmarks once its client has all events and a bookmark. Later calls have no effect.
    pub fn begin(&self) {
        self.begin_at_most(usize::MAX);
    }

    /// The same, unless there are more such watches than this; returns how many end.
    pub fn begin_at_most(&self, watches: usize) -> usize {
        let state = &self.0;
        let mut counts = state.counts.lock();
        let movable = counts.movable;
        if counts.spread.is_some() || movable > watches {
            return 0;
        }
        let at_rate = Duration::from_secs(u64::try_from(movable).unwrap_or(u64::MAX));
        counts.spread = Some((at_rate / RECALLS_PER_SECOND).max(END_SPREAD_MIN));
        state.total.subtract(movable);
        drop(counts);
        state.watches.revoke();
        state.wake.notify_one();
        movable
    }

    /// Whether the watches are to end.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.0.watches.is_revoked()
    }

    /// Completes once the watches are to end. Safe to cancel.
    pub async fn begun(&self) {
        if !self.is_begun() {
            // The permit of an earlier notification is kept, so none is missed in between.
            self.0.wake.notified().await;
        }
    }

    /// Number of open watches that a recall would end.
    #[must_use]
    pub fn movable_count(&self) -> usize {
        let counts = self.0.counts.lock();
        if counts.spread.is_none() {
            counts.movable
        } else {
            0
        }
    }

    /// Registers a watch, which is movable if it has bookmarks.
    pub fn hold(&self, is_movable: bool) -> RecallHold {
        let mut counts = self.0.counts.lock();
        counts.movable += usize::from(is_movable);
        if !is_movable || counts.spread.is_none() {
            self.0.total.add(1);
        }
        drop(counts);
        RecallHold {
            lease: self.0.watches.hold(),
            recall: self.clone(),
            is_movable,
        }
    }
}

impl RecallHold {
    /// Wakes `waker` when the connection is recalled.
    pub(super) fn arm(&mut self, waker: &Waker) {
        self.lease.arm(waker);
    }

    /// In what time the connection's watches end; `None` if this one goes on.
    pub(super) fn end_spread(&self) -> Option<Duration> {
        if !self.is_movable || !self.lease.is_revoked() {
            return None;
        }
        self.recall.0.counts.lock().spread
    }
}

impl Drop for RecallHold {
    fn drop(&mut self) {
        let state = &self.recall.0;
        let mut counts = state.counts.lock();
        counts.movable -= usize::from(self.is_movable);
        if !self.is_movable || counts.spread.is_none() {
            state.total.subtract(1);
        }
    }
}
