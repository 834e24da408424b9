//! Ends a watch in order when the serving rules have changed, and upstream answers its client now (decision 61). The client resumes there.

use std::task::Waker;

use tokio::time::Instant;

use super::recall::END_AFTER;
use super::{Watch, WatchCursor};
use crate::resource::fraction;
use crate::serving_control::SideHold;

impl Watch {
    /// Ends the watch in order when its client is no longer answered from memory. Call it once the watch is in the table.
    pub(crate) fn follow_side(&mut self, side: SideHold) {
        self.cursor.guards.side = Some(side);
        // The rules may have changed since the request was decided.
        self.cursor.choose_side();
    }
}

impl WatchCursor {
    pub(super) fn arm_side(&mut self, waker: &Waker) {
        if let Some(side) = &mut self.guards.side {
            side.arm(waker);
        }
    }

    /// Reads the rules again if it is this watch's turn.
    pub(super) fn follow_side(&mut self, waker: &Waker) {
        let Some(side) = self.guards.side.as_mut().filter(|side| side.is_due()) else {
            return;
        };
        // The turn may come again before the new hold is armed.
        while side.is_due() {
            side.renew();
            side.arm(waker);
        }
        self.choose_side();
    }

    fn choose_side(&mut self) {
        let (Some(side), Some(place)) = (&self.guards.side, &self.place) else {
            return;
        };
        let has_bookmarks = self.lifetime.bookmarks.is_some();
        let spread = side.leaves(&place.subject(&side.user), has_bookmarks);
        self.lifetime.switch_at = spread.map(|spread| {
            // client-go lists again after a watch of less than a second without an event.
            let earliest = Instant::from_std(self.lifetime.opened_at) + END_AFTER;
            Instant::now().max(earliest) + spread.mul_f64(fraction())
        });
    }
}
