//! A bounded number of permits with a bounded queue, for many tasks. Waiting peers take turns.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::fair_queue::{FairQueue, QueueDecision};
use super::{Peer, Shortage};

/// Permits for which tasks wait. Clones share them.
#[derive(Clone, Debug)]
pub struct QueuedPermits(Arc<Mutex<FairQueue<oneshot::Sender<QueuedPermit>>>>);

impl QueuedPermits {
    /// With these numbers of permits and of waiting tasks.
    #[must_use]
    pub fn new(running_max: usize, waiting_max: usize) -> Self {
        Self(Arc::new(Mutex::new(FairQueue::new(
            running_max,
            waiting_max,
        ))))
    }

    /// Requests a permit for the peer.
    ///
    /// # Errors
    /// The queue is full, for this peer or for all.
    pub fn request(&self, peer: Peer) -> Result<PendingPermit, Shortage> {
        let (sender, permit) = oneshot::channel();
        let waiter = match self.0.lock().enter(peer) {
            QueueDecision::Runs => {
                // Cannot fail, because the receiver is still in scope.
                let _ = sender.send(self.permit(peer));
                None
            }
            QueueDecision::MayWait(ticket) => Some(QueuedWaiter {
                id: ticket.wait(sender),
                permits: self.clone(),
                peer,
            }),
            QueueDecision::Full(shortage) => return Err(shortage),
        };
        Ok(PendingPermit {
            permit,
            _waiter: waiter,
        })
    }

    /// Waits for a permit; `None` if the queue is full.
    pub async fn acquire(&self, peer: Peer) -> Option<QueuedPermit> {
        self.request(peer).ok()?.granted().await
    }

    fn permit(&self, peer: Peer) -> QueuedPermit {
        QueuedPermit {
            permits: self.clone(),
            peer,
        }
    }
}

/// A permit that was granted, or a place in the queue, which is given up on drop.
#[derive(Debug)]
pub struct PendingPermit {
    /// Dropped before the waiter, so that a permit that was granted but not taken goes to the next in the queue.
    permit: oneshot::Receiver<QueuedPermit>,
    _waiter: Option<QueuedWaiter>,
}

impl PendingPermit {
    /// Waits for the permit; `None` if it can no longer be granted.
    pub async fn granted(mut self) -> Option<QueuedPermit> {
        (&mut self.permit).await.ok()
    }
}

/// A place in the queue, which is given up on drop.
#[derive(Debug)]
struct QueuedWaiter {
    permits: QueuedPermits,
    peer: Peer,
    id: u64,
}

impl Drop for QueuedWaiter {
    fn drop(&mut self) {
        self.permits.0.lock().give_up(self.peer, self.id);
    }
}

/// A permit, returned on drop.
#[derive(Debug)]
pub struct QueuedPermit {
    permits: QueuedPermits,
    peer: Peer,
}

impl Drop for QueuedPermit {
    fn drop(&mut self) {
        let mut admitted = Vec::new();
        let mut queue = self.permits.0.lock();
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

#[cfg(test)]
mod tests;
