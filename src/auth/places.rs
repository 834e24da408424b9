//! Places of reviews, and the line of those who wait for one, both shared among callers: whoever causes reviews in masses waits for
//! itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::fairness::Peer;
use crate::fairness::line::{Entry, Line};

/// So many reviews at once, and so many that wait. Clones are the same places.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Mutex<Line<oneshot::Sender<Place>>>>);

impl Places {
    pub(super) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Line::new(running_max, waiting_max))))
    }

    /// A turn for the peer; `None` if its part of the line is full, or all of it.
    pub(super) fn turn(&self, peer: Peer) -> Option<Turn> {
        let (sender, place) = oneshot::channel();
        let mut line = self.line();
        let waiting = match line.enter(peer) {
            Entry::Runs => {
                // Nobody has dropped the other end.
                let _ = sender.send(self.place(peer));
                None
            }
            Entry::MayWait(ticket) => Some(Waiting {
                id: ticket.wait(sender),
                places: self.clone(),
                peer,
            }),
            Entry::Full(_) => return None,
        };
        Some(Turn {
            place,
            _waiting: waiting,
        })
    }

    fn place(&self, peer: Peer) -> Place {
        Place {
            places: self.clone(),
            peer,
        }
    }

    fn line(&self) -> MutexGuard<'_, Line<oneshot::Sender<Place>>> {
        // The line is whole between its methods, and these do not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that was given, or that is waited for until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    /// Dropped first: a place that lies in it goes to the next one.
    place: oneshot::Receiver<Place>,
    _waiting: Option<Waiting>,
}

impl Turn {
    /// The place, when its turn has come; `None` if it never comes.
    pub(super) async fn come(mut self) -> Option<Place> {
        (&mut self.place).await.ok()
    }
}

#[derive(Debug)]
struct Waiting {
    places: Places,
    peer: Peer,
    id: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.places.line().give_up(self.peer, self.id);
    }
}

/// The right to one review, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    peer: Peer,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut turns = Vec::new();
        let mut line = self.places.line();
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

#[cfg(test)]
mod tests;
