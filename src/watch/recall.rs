//! Ends the watches of one connection in order, so that their client opens another connection, perhaps to another replica (decision 52). The
//! connection itself is ended by its listener.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Watch, WatchCursor};
use crate::auth::lease::{Lease, LeaseHold};
use crate::resource::fraction;

/// How long a watch goes on after its connection was recalled. By then the client has GOAWAY, and opens its next watch on another connection.
/// The time also counts for a watch that comes too late to know: client-go lists again after one of less than a second without an event.
const END_AFTER: Duration = Duration::from_millis(1_500);
/// The watches of a connection end within this time, so that they do not come back at one moment.
const END_SPREAD: Duration = Duration::from_secs(2);

/// Ends the watches of one connection. Clones share the connection.
#[derive(Clone, Debug, Default)]
pub struct WatchRecall(Arc<RecallState>);

#[derive(Debug, Default)]
struct RecallState {
    /// Revoked when the watches end; each watch holds it.
    watches: Lease,
    /// Wakes the connection's task, the only one that waits.
    wake: Notify,
}

impl WatchRecall {
    /// Ends each watch once its client has all events and a bookmark. Later calls have no effect.
    pub fn begin(&self) {
        if !self.is_begun() {
            self.0.watches.revoke();
            self.0.wake.notify_one();
        }
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

    /// Number of open watches of the connection.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.0.watches.stream_count()
    }
}

impl Watch {
    /// Ends the watch in order when its connection is recalled.
    pub(crate) fn follow(&mut self, recall: &WatchRecall) {
        self.cursor.hold_recall(recall);
    }
}

impl WatchCursor {
    pub(super) fn hold_recall(&mut self, recall: &WatchRecall) {
        self.recall = Some(recall.0.watches.hold());
    }

    /// Wakes `waker` when the connection is recalled.
    pub(crate) fn arm_recall(&mut self, waker: &Waker) {
        if let Some(recall) = &mut self.recall {
            recall.arm(waker);
        }
    }

    /// Draws the time of the end if the connection was recalled. Arm first, so that no recall is missed in between. A client without bookmarks
    /// may have to list if its watch ends, so such a watch goes on until its own end.
    pub(crate) fn follow_recall(&mut self) {
        if self.bookmarks.is_none() || !self.recall.as_ref().is_some_and(LeaseHold::is_revoked) {
            return;
        }
        self.recall = None;
        let end_at = Instant::now() + END_AFTER + END_SPREAD.mul_f64(fraction());
        self.recalled_end_at(end_at);
    }
}
