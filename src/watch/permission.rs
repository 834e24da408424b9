//! The permission of a stream, which may be revoked while it is open. Looked at when a stream is woken, never for each event.

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

    /// Ends the stream if its permission was revoked. Arm first: a revocation between the two is seen.
    pub(crate) fn is_revoked(&mut self) -> bool {
        let is_revoked = self.lease.as_ref().is_some_and(LeaseHold::is_revoked);
        if is_revoked {
            self.end_as(WatchEnd::Revoked);
        }
        is_revoked
    }
}
