//! The permission of a stream, which can be revoked while it is open. It is checked when the stream is woken, not for each event.

use std::task::Waker;

use super::{WatchCursor, WatchEnd};
use crate::auth::lease::LeaseHold;

impl WatchCursor {
    /// Wakes `waker` when the permission is revoked.
    pub(crate) fn arm_lease(&mut self, waker: &Waker) {
        if let Some(lease) = &mut self.lease {
            lease.arm(waker);
        }
    }

    /// Ends the stream if its permission was revoked; returns whether it was. Arm first, so that no revocation is missed in
    /// between.
    pub(crate) fn is_revoked(&mut self) -> bool {
        let is_revoked = self.lease.as_ref().is_some_and(LeaseHold::is_revoked);
        if is_revoked {
            self.end_as(WatchEnd::Revoked);
        }
        is_revoked
    }
}
