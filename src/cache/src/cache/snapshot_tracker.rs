//! What readers hold of states that are not the newest any more, such as a list whose client reads slowly. It says only how much memory
//! that is; who holds them is not known here.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::catch_up::Tombstone;
use super::event::Event;
use super::objects::ChunksMemory;
use super::ring::{Ring, Sequence};
use super::snapshot::Snapshot;
use crate::resource::Object;

/// Snapshots that nobody holds any more are forgotten when there are this many, or twice as many as were held the last time.
const FORGET_LEN: usize = 16;
/// Maximum number of snapshots that are compared for one reading; each costs some tens of microseconds. Of more, some are left out:
/// what lies between two of them is then counted as a part of their difference.
const COMPARED_MAX: usize = 64;
/// Maximum number of objects that are compared for one reading, about a millisecond of work; where they do not suffice, chunks are.
const VISITED_MAX: usize = 8_192;

/// Held by the writer of a cache. Without it the cache has ended, whoever still reads it.
#[derive(Debug)]
pub(super) struct WriterToken;

/// The snapshots of one cache, which it may outlive.
#[derive(Debug)]
pub struct SnapshotTracker {
    /// Gone when the cache has ended.
    writer: Weak<WriterToken>,
    /// Gone when nobody reads the cache any more, which may be later.
    history: Weak<Ring<Arc<Event>>>,
    tombstones: OnceLock<Weak<Ring<Tombstone>>>,
    /// What the history and the deletions take of a cache that has ended and is still read.
    ended_history_len: OnceLock<usize>,
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

    fn forget_if_many(&mut self) {
        if self.states.len() >= self.forget_at {
            self.forget();
        }
    }
}

impl SnapshotTracker {
    pub(super) fn new(history: &Arc<Ring<Arc<Event>>>, writer: &Arc<WriterToken>) -> Self {
        Self {
            writer: Arc::downgrade(writer),
            history: Arc::downgrade(history),
            tombstones: OnceLock::new(),
            ended_history_len: OnceLock::new(),
            published: Mutex::default(),
        }
    }

    /// Counts the deletions that the cache keeps, once it has ended.
    pub(super) fn add_tombstones(&self, tombstones: &Arc<Ring<Tombstone>>) {
        // A cache has one ring of deletions.
        let _ = self.tombstones.set(Arc::downgrade(tombstones));
    }

    /// Records a snapshot before it is published.
    pub(super) fn add(&self, snapshot: &Arc<Snapshot>) {
        let mut published = self.published.lock();
        published.forget_if_many();
        published.states.push(Arc::downgrade(snapshot));
    }

    /// Records a state that was made from a newer one.
    pub(super) fn add_rewound(&self, snapshot: &Arc<Snapshot>) {
        let mut published = self.published.lock();
        published.forget_if_many();
        let later = published.states.iter().position(|state| {
            state
                .upgrade()
                .is_some_and(|state| state.sequence >= snapshot.sequence)
        });
        let at = later.unwrap_or(published.states.len());
        published.states.insert(at, Arc::downgrade(snapshot));
    }

    /// Whether the cache has ended and nobody holds any of its states.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let published = self.published.lock();
        self.history.strong_count() == 0
            && !published
                .states
                .iter()
                .any(|state| state.strong_count() > 0)
    }

    /// Bytes of memory that states take which readers hold, beyond the newest state and the history. Once the cache has ended, that is
    /// all of them, and the history as long as somebody reads it.
    #[must_use]
    pub fn memory(&self) -> usize {
        let is_ended = self.writer.strong_count() == 0;
        let states = self.held();
        let history = self.history.upgrade();
        let oldest = history
            .as_ref()
            .map_or(Sequence::MAX, |history| history.oldest());
        let (mut len, mut visits) = (0, VISITED_MAX);
        for pair in states.windows(2) {
            if let [state, next] = pair {
                len += beyond(state, next, oldest, &mut visits);
            }
        }
        if is_ended {
            len += states
                .last()
                .map_or(0, |state| state.objects.memory().total());
            len += history.map_or(0, |history| self.ended_history_len(&history));
        }
        len
    }

    /// The history of a cache that has ended does not change any more, so its events are visited once.
    fn ended_history_len(&self, history: &Ring<Arc<Event>>) -> usize {
        *self.ended_history_len.get_or_init(|| {
            let events = sum(history, |event| event.weight());
            let deletions = self
                .tombstones
                .get()
                .and_then(Weak::upgrade)
                .map_or(0, |ring| {
                    sum(&ring, |deleted| deleted.object.allocated_len())
                });
            events + deletions
        })
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

/// The sum of a length over all values of a ring to which nothing is added any more.
fn sum<T>(ring: &Ring<T>, len: impl Fn(&T) -> usize) -> usize {
    let mut total = 0;
    let read = ring.read(ring.oldest(), |_, value| {
        total += len(value);
        ControlFlow::Continue(())
    });
    debug_assert!(read.is_ok(), "nothing evicts without a writer");
    total
}

/// Bytes that a state takes beyond the next one and beyond the history, whose oldest event is `oldest`. Objects that both states have are
/// shared, and the history has what its events replaced. So at most as many objects are left as there were events between the two states
/// that the history has no more, of average length, and none that are not in a chunk which has changed. As long as there are `visits`, the
/// objects of these chunks are compared as well: the same few objects may have changed again and again.
fn beyond(state: &Snapshot, next: &Snapshot, oldest: Sequence, visits: &mut usize) -> usize {
    let chunks: Vec<_> = state.objects.chunks_beyond(&next.objects).collect();
    let (mut memory, mut count) = (ChunksMemory::default(), 0);
    for chunk in &chunks {
        memory.add(chunk.memory());
        count += chunk.objects().len();
    }
    let events = next.sequence.min(oldest).saturating_sub(state.sequence);
    let events = usize::try_from(events).unwrap_or(usize::MAX);
    let average = memory.objects / count.max(1);
    let mut objects = memory.objects.min(events.saturating_mul(average));
    if objects > 0 && count <= *visits {
        *visits -= count;
        let own = chunks
            .iter()
            .flat_map(|chunk| chunk.objects())
            .filter(|object| {
                let other = next.objects.object_at(object.key());
                other.is_none_or(|other| other.resource_version() != object.resource_version())
            });
        objects = objects.min(own.map(Object::allocated_len).sum());
    }
    memory.total() - memory.objects + objects
}

#[cfg(test)]
mod tests;
