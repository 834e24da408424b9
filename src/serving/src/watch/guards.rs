//! What a stream holds until it ends. Its permission can be revoked, and its permit taken back, while it is open: both are checked when the
//! stream is woken, not for each event.

use std::task::Waker;

use super::connection_recall::RecallHold;
use crate::admission::WatchPermit;
use crate::audit::AuditTrail;
use crate::auth::lease::LeaseHold;
use crate::metrics::WatchEnd;
use crate::serving_control::SideHold;

/// What a stream holds until it ends, and what may end it.
#[derive(Debug, Default)]
pub(crate) struct WatchGuards {
    /// The permit to hold a watch open.
    pub(crate) permit: Option<WatchPermit>,
    /// The client's permission, which can be revoked.
    pub(crate) lease: Option<LeaseHold>,
    /// The connection, which can be recalled; `None` after that.
    pub(super) recall: Option<RecallHold>,
    /// The side that answers the client, which may change; `None` if that never happens.
    pub(super) side: Option<SideHold>,
    /// The entry in the audit log; held only to keep it open.
    pub(crate) trail: Option<AuditTrail>,
}

impl WatchGuards {
    /// Wakes `waker` when the permission is revoked, or the permit is taken back.
    pub(crate) fn arm(&mut self, waker: &Waker) {
        if let Some(lease) = &mut self.lease {
            lease.arm(waker);
        }
        if let Some(permit) = &mut self.permit {
            permit.arm(waker);
        }
    }

    /// Why the stream must end, if its permission was revoked or its permit was taken back. Arm first, so that nothing is missed in between.
    pub(crate) fn revocation(&mut self) -> Option<WatchEnd> {
        if self.lease.as_ref().is_some_and(LeaseHold::is_revoked) {
            return Some(WatchEnd::Revoked);
        }
        let permit = self.permit.as_mut()?;
        permit.is_taken_back().then_some(WatchEnd::Reclaimed)
    }
}
