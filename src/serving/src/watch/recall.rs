//! Ends a watch in order when its connection is recalled, so that its client opens another connection, perhaps to another replica
//! (decision 52). The connection itself is ended by its listener.

use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::connection_recall::{RecallHold, WatchRecall};
use super::{Watch, WatchCursor};
use crate::metrics::WatchEnd;
use crate::resource::fraction;

/// How long a watch goes on after its connection was recalled. By then the client has GOAWAY, and opens its next watch on another connection.
/// The time also counts for a watch that comes too late to know: client-go lists again after one of less than a second without an event.
pub(super) const END_AFTER: Duration = Duration::from_millis(1_500);

impl Watch {
    /// Ends the watch in order when its connection is recalled.
    pub(crate) fn follow(&mut self, recall: &WatchRecall) {
        self.cursor.hold_recall(recall);
    }
}

impl WatchCursor {
    /// A client without bookmarks may have to list if its watch ends, so such a watch goes on until its own end.
    pub(super) fn hold_recall(&mut self, recall: &WatchRecall) {
        self.guards.recall = Some(recall.hold(self.lifetime.bookmarks.is_some()));
    }

    /// Wakes `waker` when the connection is recalled, or the client's side may have changed.
    pub(crate) fn arm_recall(&mut self, waker: &Waker) {
        if let Some(recall) = &mut self.guards.recall {
            recall.arm(waker);
        }
        self.arm_side(waker);
    }

    /// Draws the time of the end if the connection was recalled, or the client's side has changed. Arm first, so that nothing is missed in
    /// between; `waker` is armed again where that is needed.
    pub(crate) fn follow_recall(&mut self, waker: &Waker) {
        self.follow_side(waker);
        let recall = self.guards.recall.as_ref();
        let Some(spread) = recall.and_then(RecallHold::end_spread) else {
            return;
        };
        self.guards.recall = None;
        let end_at = Instant::now() + END_AFTER + spread.mul_f64(fraction());
        self.ended_at(end_at, WatchEnd::Rebalance);
    }
}
