//! Permits for reviews and for verifications of certificates, and a queue of requests that wait for one. Permits and queue are shared fairly among callers, so that a caller
//! with masses of reviews delays only its own.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::fairness::Peer;
use crate::fairness::fair_queue::{FairQueue, QueueDecision};

/// A bounded number of permits with a bounded queue. Callers on the listener for operators have permits and a queue of their own.
/// Clones share both.
#[derive(Clone, Debug)]
pub(super) struct ReviewPermits(Arc<Lines>);

type ReviewLine = FairQueue<oneshot::Sender<ReviewPermit>>;

#[derive(Debug)]
struct Lines {
    ordinary: Mutex<ReviewLine>,
    operators: Mutex<ReviewLine>,
}

impl ReviewPermits {
    pub(super) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self(Arc::new(Lines {
            ordinary: Mutex::new(FairQueue::new(running_max, waiting_max)),
            operators: Mutex::new(FairQueue::new(OPERATORS_RUNNING_MAX, OPERATORS_WAITING_MAX)),
        }))
    }

    /// Requests a permit for the peer. `None` if the queue is full, for this peer or for all.
    pub(super) fn request(&self, peer: Peer) -> Option<PendingPermit> {
        let (sender, permit) = oneshot::channel();
        let mut queue = self.queue(peer);
        let waiter = match queue.enter(peer) {
            QueueDecision::Runs => {
                // Cannot fail, because the receiver is still in scope.
                let _ = sender.send(self.permit(peer));
                None
            }
            QueueDecision::MayWait(ticket) => Some(ReviewWaiter {
                id: ticket.wait(sender),
                permits: self.clone(),
                peer,
            }),
            QueueDecision::Full(_) => return None,
        };
        Some(PendingPermit {
            permit,
            _waiter: waiter,
        })
    }

    fn permit(&self, peer: Peer) -> ReviewPermit {
        ReviewPermit {
            permits: self.clone(),
            peer,
        }
    }

    /// The queue of the peer's listener.
    fn queue(&self, peer: Peer) -> MutexGuard<'_, ReviewLine> {
        let queue = match peer.is_operator() {
            true => &self.0.operators,
            false => &self.0.ordinary,
        };
        queue.lock()
    }
}

/// A permit that was granted, or a place in the queue, which is given up on drop.
#[derive(Debug)]
pub(super) struct PendingPermit {
    /// Dropped before the waiter, so that a permit that was granted but not taken goes to the next in the queue.
    permit: oneshot::Receiver<ReviewPermit>,
    _waiter: Option<ReviewWaiter>,
}

impl PendingPermit {
    /// Waits for the permit; `None` if it can no longer be granted.
    pub(super) async fn granted(mut self) -> Option<ReviewPermit> {
        (&mut self.permit).await.ok()
    }
}

/// A place in the queue, which is given up on drop.
#[derive(Debug)]
struct ReviewWaiter {
    permits: ReviewPermits,
    peer: Peer,
    id: u64,
}

impl Drop for ReviewWaiter {
    fn drop(&mut self) {
        self.permits.queue(self.peer).give_up(self.peer, self.id);
    }
}

/// The right to one review, returned on drop.
#[derive(Debug)]
pub(super) struct ReviewPermit {
    permits: ReviewPermits,
    peer: Peer,
}

impl Drop for ReviewPermit {
    fn drop(&mut self) {
        let mut admitted = Vec::new();
        let mut queue = self.permits.queue(self.peer);
        queue.leave(self.peer);
        while let Some((peer, sender)) = queue.admit_next() {
            admitted.push((self.permits.permit(peer), sender));
        }
        // Released first: a permit that cannot be sent is dropped below, and its drop locks the queue again.
        drop(queue);
        for (permit, sender) in admitted {
            let _ = sender.send(permit);
        }
    }
}

/// Concurrent reviews of callers on the listener for operators.
const OPERATORS_RUNNING_MAX: usize = 10;
/// Waiting reviews of callers on the listener for operators.
const OPERATORS_WAITING_MAX: usize = 80;

#[cfg(test)]
mod tests;
