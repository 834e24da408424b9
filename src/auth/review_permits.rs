//! Places of reviews, and the line of those who wait for one, both shared among callers: whoever causes reviews in masses waits for
//! itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::fairness::Peer;
use crate::fairness::fair_queue::{FairQueue, QueueDecision};

/// So many reviews at once, and so many that wait; callers on the listener for operators have some of their own. Clones are the same
/// places.
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

    /// A turn for the peer; `None` if its part of the line is full, or all of it.
    pub(super) fn turn(&self, peer: Peer) -> Option<PendingPermit> {
        let (sender, place) = oneshot::channel();
        let mut line = self.line(peer);
        let waiting = match line.enter(peer) {
            QueueDecision::Runs => {
                // Nobody has dropped the other end.
                let _ = sender.send(self.place(peer));
                None
            }
            QueueDecision::MayWait(ticket) => Some(ReviewWaiter {
                id: ticket.wait(sender),
                places: self.clone(),
                peer,
            }),
            QueueDecision::Full(_) => return None,
        };
        Some(PendingPermit {
            place,
            _waiting: waiting,
        })
    }

    fn place(&self, peer: Peer) -> ReviewPermit {
        ReviewPermit {
            places: self.clone(),
            peer,
        }
    }

    /// The line that the peer stands in.
    fn line(&self, peer: Peer) -> MutexGuard<'_, ReviewLine> {
        let line = match peer.is_operator() {
            true => &self.0.operators,
            false => &self.0.ordinary,
        };
        // The line is whole between its methods, and these do not panic.
        line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that was given, or that is waited for until this is dropped.
#[derive(Debug)]
pub(super) struct PendingPermit {
    /// Dropped first: a place that lies in it goes to the next one.
    place: oneshot::Receiver<ReviewPermit>,
    _waiting: Option<ReviewWaiter>,
}

impl PendingPermit {
    /// The place, when its turn has come; `None` if it never comes.
    pub(super) async fn come(mut self) -> Option<ReviewPermit> {
        (&mut self.place).await.ok()
    }
}

#[derive(Debug)]
struct ReviewWaiter {
    places: ReviewPermits,
    peer: Peer,
    id: u64,
}

impl Drop for ReviewWaiter {
    fn drop(&mut self) {
        self.places.line(self.peer).give_up(self.peer, self.id);
    }
}

/// The right to one review, until it is dropped.
#[derive(Debug)]
pub(super) struct ReviewPermit {
    places: ReviewPermits,
    peer: Peer,
}

impl Drop for ReviewPermit {
    fn drop(&mut self) {
        let mut turns = Vec::new();
        let mut line = self.places.line(self.peer);
        line.leave(self.peer);
        while let Some((peer, sender)) = line.admit_next() {
            turns.push((self.places.place(peer), sender));
        }
        drop(line);
        for (place, sender) in turns {
            // Who has just given up lets the place go, and it comes back here.
            let _ = sender.send(place);
        }
    }
}

const OPERATORS_RUNNING_MAX: usize = 10;
const OPERATORS_WAITING_MAX: usize = 80;

#[cfg(test)]
mod tests;
