//! The permission of a stream, which can be revoked while it is open. It is checked when the stream is woken, not for each event.

use std::task::Waker;

use super::WatchCursor;
use crate::admission::WatchPermit;
use crate::auth::lease::LeaseHold;
use crate::metrics::WatchEnd;

impl WatchCursor {
    /// Wakes `waker` when the permission is revoked, or the permit is taken back.
    pub(crate) fn arm_lease(&mut self, waker: &Waker) {
        if let Some(lease) = &mut self.lease {
            lease.arm(waker);
        }
        if let Some(permit) = &mut self.permit {
            permit.arm(waker);
        }
    }

    /// Ends the stream if its permission was revoked, or its permit was taken back; returns whether one was. Arm first, so that nothing is
    /// missed in between.
    pub(crate) fn is_revoked(&mut self) -> bool {
        if self.lease.as_ref().is_some_and(LeaseHold::is_revoked) {
            self.end_as(WatchEnd::Revoked);
            return true;
        }
        let is_taken_back = self.permit.as_mut().is_some_and(WatchPermit::is_taken_back);
        if is_taken_back {
            self.end_as(WatchEnd::Reclaimed);
        }
        is_taken_back
    }
}
