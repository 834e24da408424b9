//! What readers hold of states that are not the newest any more, such as a list whose client reads slowly. It says only how much memory
//! that is; who holds them is not known here.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::event::Event;
use super::objects::ChunksMemory;
use super::ring::{Ring, Sequence};
use super::snapshot::Snapshot;

/// Snapshots that nobody holds any more are forgotten when there are this many, or twice as many as were held the last time.
const FORGET_LEN: usize = 16;
/// Maximum number of snapshots that are compared for one reading; each costs some tens of microseconds. Of more, some are left out:
/// what lies between two of them is then counted as a part of their difference.
const COMPARED_MAX: usize = 64;

/// The snapshots of one cache, which it may outlive.
#[derive(Debug)]
pub struct SnapshotTracker {
    /// Gone when the cache has ended.
    history: Weak<Ring<Arc<Event>>>,
    published: Mutex<PublishedStates>,
}

/// Oldest first.
#[derive(Debug, Default)]
struct PublishedStates {
    states: Vec<Weak<Snapshot>>,
    forget_at: usize,
}

impl PublishedStates {
    fn forget(&mut self) {
        self.states.retain(|state| state.strong_count() > 0);
        self.forget_at = (self.states.len() * 2).max(FORGET_LEN);
    }
}

impl SnapshotTracker {
    pub(super) fn new(history: &Arc<Ring<Arc<Event>>>) -> Self {
        Self {
            history: Arc::downgrade(history),
            published: Mutex::default(),
        }
    }

    /// Records a snapshot before it is published.
    pub(super) fn add(&self, snapshot: &Arc<Snapshot>) {
        let mut published = self.published.lock();
        if published.states.len() >= published.forget_at {
            published.forget();
        }
        published.states.push(Arc::downgrade(snapshot));
    }

    /// Whether the cache has ended and nobody holds any of its states.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let published = self.published.lock();
        let is_held = |state: &Weak<Snapshot>| state.strong_count() > 0;
        self.history.strong_count() == 0 && !published.states.iter().any(is_held)
    }

    /// Bytes of memory that states take which readers hold, beyond the newest state and the history. Once the cache has ended, that is
    /// all of them.
    #[must_use]
    pub fn memory(&self) -> usize {
        let states = self.held();
        let oldest = self.history.upgrade().map(|history| history.oldest());
        let mut len = 0;
        for (index, state) in states.iter().enumerate() {
            len += match (states.get(index + 1), oldest) {
                (Some(next), oldest) => beyond(state, next, oldest.unwrap_or(Sequence::MAX)),
                // The newest: its objects are the cache's.
                (None, Some(_)) => 0,
                (None, None) => state.objects.memory().total(),
            };
        }
        len
    }

    /// The states that are held, oldest first; with the cache, the newest one is the last.
    fn held(&self) -> Vec<Arc<Snapshot>> {
        let mut published = self.published.lock();
        published.forget();
        let step = published.states.len().div_ceil(COMPARED_MAX).max(1);
        // From the newest on, so that it is one of them.
        let some = published.states.iter().rev().step_by(step);
        let mut held: Vec<_> = some.filter_map(Weak::upgrade).collect();
        held.reverse();
        held
    }
}

/// Bytes that a state takes beyond the next one and beyond the history, whose oldest event is `oldest`. Objects that both states have are
/// shared, and the history has what its events replaced. So at most as many objects are left as there were events between the two states
/// that the history has no more, and none that are not in a chunk which has changed. An object of average length is assumed for each, so
/// that no object has to be visited.
fn beyond(state: &Snapshot, next: &Snapshot, oldest: Sequence) -> usize {
    let (mut memory, mut count) = (ChunksMemory::default(), 0);
    for chunk in state.objects.chunks_beyond(&next.objects) {
        memory.add(chunk.memory());
        count += chunk.objects().len();
    }
    let events = next.sequence.min(oldest).saturating_sub(state.sequence);
    let events = usize::try_from(events).unwrap_or(usize::MAX);
    let average = memory.objects / count.max(1);
    let objects = memory.objects.min(events.saturating_mul(average));
    memory.total() - memory.objects + objects
}

#[cfg(test)]
mod tests;
