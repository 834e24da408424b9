//! Permits for reviews and for verifications of certificates, and a queue of requests that wait for one. Permits and queue are shared fairly
//! among callers, so that a caller with masses of reviews delays only its own.

use std::time::Duration;

use super::upstream::ReviewError;
use crate::fairness::Peer;
use crate::fairness::queued_permits::QueuedPermits;
pub(super) use crate::fairness::queued_permits::{PendingPermit, QueuedPermit as ReviewPermit};

/// A bounded number of permits with a bounded queue. Callers on the listener for operators have permits and a queue of their own.
/// Clones share both.
#[derive(Clone, Debug)]
pub(super) struct ReviewPermits {
    ordinary: QueuedPermits,
    operators: QueuedPermits,
}

impl ReviewPermits {
    pub(super) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            ordinary: QueuedPermits::new(running_max, waiting_max),
            operators: QueuedPermits::new(OPERATORS_RUNNING_MAX, OPERATORS_WAITING_MAX),
        }
    }

    /// Requests a permit for the peer. `None` if the queue is full, for this peer or for all.
    pub(super) fn request(&self, peer: Peer) -> Option<PendingPermit> {
        let permits = match peer.is_operator() {
            true => &self.operators,
            false => &self.ordinary,
        };
        permits.request(peer).ok()
    }
}

/// The permit, once it is its turn.
///
/// # Errors
/// [`ReviewError::Busy`] after 30 s: who waited is told to come again, and is never taken for somebody without rights.
pub(super) async fn in_turn(pending: PendingPermit) -> Result<ReviewPermit, ReviewError> {
    let granted = tokio::time::timeout(WAIT_MAX, pending.granted()).await;
    granted.ok().flatten().ok_or(ReviewError::Busy)
}

/// How long a review waits for its permit. It has its own time afterwards.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(30);

/// Concurrent reviews of callers on the listener for operators.
const OPERATORS_RUNNING_MAX: usize = 10;
/// Waiting reviews of callers on the listener for operators.
const OPERATORS_WAITING_MAX: usize = 80;
