//! A queue of changes, gathered per object: what a reflector puts in, and what a store and its followers are brought up to date by.
//!
//! The rules are those of client-go's `DeltaFIFO`. Objects leave in the order in which they were queued first, each with all
//! that happened to it since; one consumer processes them while the queue is locked, so that what the queue regards as known
//! and what the consumer has done agree. It does not merge updates: a consumer sees each one.
//!
//! **Bound.** The queue never refuses a change because of its length, or the change would be lost. A producer asks
//! [`DeltaFifo::writable`] before it reads more; what it had read already comes on top. A replacement and a resync come
//! on top too, each with one delta per object at most.

mod delta;
mod pending;

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use self::pending::PendingDeltas;
use super::key::{KeyError, KeyFn, KeylessObjects, key_of, keyed};
use crate::resource::ObjectKey;
pub use delta::{Delta, DeltaKind, DeltaSubject};

/// Deltas that wait before a producer is asked to pause: with objects of 5 KiB, 50 MB that the store does not share yet.
pub const PENDING_MAX_DEFAULT: usize = 10_000;

/// What the queue's consumer has stored: the queue tells by it what a replacement takes away.
pub trait KnownObjects<V>: Send + Sync {
    /// The keys of all objects.
    fn keys(&self) -> Vec<ObjectKey>;
    /// One object.
    fn object(&self, key: &ObjectKey) -> Option<Arc<V>>;
}

/// A change was not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The queue was closed before.
    #[error("the queue is closed")]
    Closed,
    /// The object has no key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Changes that wait, in the order of their objects' first.
pub struct DeltaFifo<V> {
    key: KeyFn<V>,
    known: Arc<dyn KnownObjects<V>>,
    pending_max: usize,
    pending: Mutex<PendingDeltas<V>>,
    /// Something was queued, or the queue was closed.
    filled: Notify,
    /// The queue fell below its bound, or was closed.
    room: Notify,
}

impl<V> DeltaFifo<V> {
    /// An empty queue with the default bound.
    #[must_use]
    pub fn new(key: KeyFn<V>, known: Arc<dyn KnownObjects<V>>) -> Self {
        Self::bounded(key, known, PENDING_MAX_DEFAULT)
    }

    /// An empty queue that counts as full when so many deltas wait, all objects' together.
    #[must_use]
    pub fn bounded(key: KeyFn<V>, known: Arc<dyn KnownObjects<V>>, pending_max: usize) -> Self {
        Self {
            key,
            known,
            pending_max: pending_max.max(1),
            pending: Mutex::default(),
            filled: Notify::new(),
            room: Notify::new(),
        }
    }

    /// Queues that an object is new.
    ///
    /// # Errors
    /// See [`QueueError`]; nothing was queued then.
    pub fn add(&self, object: Arc<V>) -> Result<(), QueueError> {
        self.queue(DeltaKind::Added, object)
    }

    /// Queues that an object changed.
    ///
    /// # Errors
    /// See [`QueueError`]; nothing was queued then.
    pub fn update(&self, object: Arc<V>) -> Result<(), QueueError> {
        self.queue(DeltaKind::Updated, object)
    }

    /// Queues that an object is gone; of an object that is neither queued nor known, nothing.
    ///
    /// # Errors
    /// See [`QueueError`]; nothing was queued then.
    pub fn delete(&self, object: Arc<V>) -> Result<(), QueueError> {
        self.queue(DeltaKind::Deleted, object)
    }

    fn queue(&self, kind: DeltaKind, object: Arc<V>) -> Result<(), QueueError> {
        let key = key_of(&self.key, &*object)?;
        let mut pending = self.open()?;
        pending.populate(0);
        if kind == DeltaKind::Deleted
            && !pending.contains(&key)
            && self.known.object(&key).is_none()
        {
            // A replacement has told its end already.
            return Ok(());
        }
        let repeated = pending.append(key, Delta::new(kind, object));
        drop(pending);
        // An object's destructor is the user's.
        drop(repeated);
        self.filled.notify_waiters();
        Ok(())
    }

    /// Queues the state of the whole collection: each object as replaced, and what is queued or known but not among them
    /// as deleted, with the newest state that is queued or known. Of the first replacement, all that it queues is the
    /// initial population.
    ///
    /// Objects without a key are left out and counted. Since nobody can tell which they are, what was known under their keys
    /// counts as gone.
    ///
    /// # Errors
    /// The queue is closed.
    pub fn replace(&self, objects: Vec<Arc<V>>) -> Result<KeylessObjects, QueueError> {
        self.replace_but(objects, |_| false)
    }

    /// The same, but an object that is missing does not count as gone if `is_kept` says so of its newest state: a list had
    /// it, in a state that cannot be stored.
    ///
    /// # Errors
    /// The queue is closed.
    pub(super) fn replace_but(
        &self,
        objects: Vec<Arc<V>>,
        is_kept: impl Fn(&V) -> bool,
    ) -> Result<KeylessObjects, QueueError> {
        let (objects, refused) = keyed(&self.key, objects);
        let mut pending = self.open()?;
        pending.replace(objects, &*self.known, is_kept);
        drop(pending);
        self.filled.notify_waiters();
        Ok(refused)
    }

    /// Queues that an object is gone whose last state, or whose key, cannot be told: the one whose newest queued or known state is
    /// such. If that is not under `likely_key`, looks through all objects.
    ///
    /// # Errors
    /// The queue is closed.
    pub(super) fn delete_such(
        &self,
        likely_key: &ObjectKey,
        is_gone: impl Fn(&V) -> bool,
    ) -> Result<(), QueueError> {
        let mut pending = self.open()?;
        pending.populate(0);
        pending.delete_such(&*self.known, likely_key, is_gone);
        drop(pending);
        self.filled.notify_waiters();
        Ok(())
    }

    /// The key that an object would be queued under.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn key_of(&self, object: &V) -> Result<ObjectKey, KeyError> {
        key_of(&self.key, object)
    }

    /// Queues the known state of each known object of which nothing is queued, so that it is told again. Others are about to
    /// be told of anyway, and what is known of them is outdated. A closed queue stays as it is.
    pub fn resync(&self) {
        let Ok(mut pending) = self.open() else {
            return;
        };
        pending.resync(&*self.known);
        drop(pending);
        self.filled.notify_waiters();
    }

    /// Whether a resync is not processed yet.
    #[must_use]
    pub fn is_resyncing(&self) -> bool {
        self.lock().is_resyncing()
    }

    /// Takes the first object's deltas, oldest first, and processes them while the queue is locked: `process` must not
    /// call this queue, and should be quick. It also hears whether they are part of the initial population.
    ///
    /// The deltas count as processed whatever `process` returns, or if it panics; nothing is queued again
    /// (as in client-go since 1.33). Returns `None` if nothing is queued.
    pub fn pop<E>(
        &self,
        process: impl FnOnce(&ObjectKey, &[Delta<V>], bool) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        // Comes before the lock, to be dropped after it: who wakes up finds the queue unlocked.
        let mut waiters = Waiters {
            notify: &self.room,
            wake: false,
        };
        // So do these: an object's destructor is the user's.
        let (key, deltas);
        let mut pending = self.lock();
        let in_initial_list = !pending.has_synced();
        let was_full = self.is_full_of(&pending);
        (key, deltas) = pending.pop()?;
        waiters.wake = was_full && !self.is_full_of(&pending);
        Some(process(&key, &deltas, in_initial_list))
    }

    /// Waits until something is queued, or the queue is closed. Safe to cancel.
    pub async fn filled(&self) {
        self.wait(&self.filled, |pending| {
            pending.is_closed() || pending.len() > 0
        })
        .await;
    }

    /// Waits until the queue has synced without anything to pop, by an empty first replacement, or is closed. Safe to cancel.
    pub async fn synced_without_deltas(&self) {
        self.wait(&self.filled, |pending| {
            pending.is_closed() || pending.has_synced()
        })
        .await;
    }

    /// Waits until fewer deltas wait than the bound allows, or the queue is closed. Safe to cancel.
    pub async fn writable(&self) {
        self.wait(&self.room, |pending| {
            pending.is_closed() || !self.is_full_of(pending)
        })
        .await;
    }

    /// Waits until the queue is closed. Safe to cancel.
    pub async fn closed(&self) {
        self.wait(&self.room, PendingDeltas::is_closed).await;
    }

    async fn wait(&self, notify: &Notify, is_over: impl Fn(&PendingDeltas<V>) -> bool) {
        loop {
            let mut notified = pin!(notify.notified());
            // From here on no notification is missed, so that the look that follows is not too early.
            notified.as_mut().enable();
            if is_over(&self.lock()) {
                return;
            }
            notified.await;
        }
    }

    /// Whether a producer should pause.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full_of(&self.lock())
    }

    fn is_full_of(&self, pending: &PendingDeltas<V>) -> bool {
        pending.delta_count() >= self.pending_max
    }

    /// Whether the initial population has been processed: that of the first replacement, or none if another change came
    /// before it. Never becomes false again.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.lock().has_synced()
    }

    /// Takes no more changes; those that wait can still be popped. Wakes everybody who waits.
    pub fn close(&self) {
        self.lock().close();
        self.filled.notify_waiters();
        self.room.notify_waiters();
    }

    /// Whether the queue was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed()
    }

    /// Objects of which something is queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Deltas that wait, all objects' together.
    #[must_use]
    pub fn delta_count(&self) -> usize {
        self.lock().delta_count()
    }

    /// A panic while the lock is held comes from `process` alone, which runs when the queue is in order again.
    fn lock(&self) -> MutexGuard<'_, PendingDeltas<V>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<MutexGuard<'_, PendingDeltas<V>>, QueueError> {
        let pending = self.lock();
        if pending.is_closed() {
            return Err(QueueError::Closed);
        }
        Ok(pending)
    }
}

impl<V> fmt::Debug for DeltaFifo<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaFifo")
            .field("pending_max", &self.pending_max)
            .finish_non_exhaustive()
    }
}

/// Wakes who waits when dropped, also by a panic.
struct Waiters<'a> {
    notify: &'a Notify,
    wake: bool,
}

impl Drop for Waiters<'_> {
    fn drop(&mut self) {
        if self.wake {
            self.notify.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
