//! A queue of changes, grouped by object. A reflector fills it; its consumer updates a store and notifies handlers.
//!
//! The rules are those of client-go's `DeltaFIFO`. Objects leave in the order in which they were first queued, each with all its
//! deltas. The one consumer processes them while the queue is locked, so that the queue's view of the known objects and the consumer's
//! progress agree. Updates are not merged: the consumer sees each one.
//!
//! **Bound.** The queue never rejects a change because of its length, since the change would be lost. Instead, a producer waits for
//! [`DeltaFifo::writable`] before it reads more. Changes that it has already read may exceed the bound; so may a replacement and a
//! resync, by at most one delta per object each.

mod delta;
mod known_objects;
mod pending;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use self::pending::PendingDeltas;
use super::key::{KeyError, KeyFn, KeylessObjects, key_of, keyed};
use crate::resource::ObjectKey;
pub use delta::{Delta, DeltaKind, DeltaSubject};
pub use known_objects::KnownObjects;

/// The default bound of a queue, in deltas. With objects of 5 KiB this is 50 MB that the store does not share yet.
pub const PENDING_MAX_DEFAULT: usize = 10_000;

/// A change was not queued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The queue is closed.
    #[error("the queue is closed")]
    Closed,
    /// The object has no key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// A queue of deltas grouped by object (client-go's `DeltaFIFO`).
pub struct DeltaFifo<V> {
    key: KeyFn<V>,
    known: Arc<dyn KnownObjects<V>>,
    pending_max: usize,
    pending: Mutex<PendingDeltas<V>>,
    /// Notified when something was queued, or the queue synced without that, or was closed.
    filled: Notify,
    /// Notified when the queue fell below its bound, or was closed.
    room: Notify,
}

impl<V> DeltaFifo<V> {
    /// An empty queue with the default bound.
    #[must_use]
    pub fn new(key: KeyFn<V>, known: Arc<dyn KnownObjects<V>>) -> Self {
        Self::bounded(key, known, PENDING_MAX_DEFAULT)
    }

    /// An empty queue that counts as full when `pending_max` deltas wait, of all objects together; at least one.
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

    /// Queues that an object was added.
    ///
    /// # Errors
    /// The queue is closed, or the object has no key; nothing was queued.
    pub fn add(&self, object: Arc<V>) -> Result<(), QueueError> {
        self.queue(DeltaKind::Added, object)
    }

    /// Queues that an object was updated.
    ///
    /// # Errors
    /// The queue is closed, or the object has no key; nothing was queued.
    pub fn update(&self, object: Arc<V>) -> Result<(), QueueError> {
        self.queue(DeltaKind::Updated, object)
    }

    /// Queues that an object was deleted. Does nothing if the object is neither queued nor known.
    ///
    /// # Errors
    /// The queue is closed, or the object has no key; nothing was queued.
    pub fn delete(&self, object: Arc<V>) -> Result<(), QueueError> {
        self.queue(DeltaKind::Deleted, object)
    }

    fn queue(&self, kind: DeltaKind, object: Arc<V>) -> Result<(), QueueError> {
        let key = key_of(&self.key, &*object)?;
        let mut pending = self.lock_open()?;
        pending.set_initial_population(0);
        if kind == DeltaKind::Deleted
            && !pending.contains(&key)
            && self.known.object(&key).is_none()
        {
            // A replacement has already queued the deletion, and it was processed. As the first change, it has synced the queue.
            drop(pending);
            self.filled.notify_waiters();
            return Ok(());
        }
        let repeated = pending.append(key, Delta::new(kind, object));
        drop(pending);
        // Dropped without the lock: the destructors of objects are user code.
        drop(repeated);
        self.filled.notify_waiters();
        Ok(())
    }

    /// Queues the state of the whole collection: each of these objects as replaced, and each object that is queued or known but not
    /// among them as deleted, with its newest queued or known state. The first replacement is the initial population.
    ///
    /// Objects without a key are left out and counted. The queue cannot identify them, so what was known under their keys is queued as
    /// deleted.
    ///
    /// # Errors
    /// The queue is closed.
    pub fn replace(&self, objects: Vec<Arc<V>>) -> Result<KeylessObjects, QueueError> {
        self.replace_except(objects, |_| false)
    }

    /// Like [`DeltaFifo::replace`], but an object that is missing is not queued as deleted if `is_kept` is true of its newest state: the
    /// list had the object, in a state that cannot be stored.
    ///
    /// # Errors
    /// The queue is closed.
    pub(super) fn replace_except(
        &self,
        objects: Vec<Arc<V>>,
        is_kept: impl Fn(&V) -> bool,
    ) -> Result<KeylessObjects, QueueError> {
        let (objects, keyless) = keyed(&self.key, objects);
        let mut pending = self.lock_open()?;
        pending.replace(objects, &*self.known, is_kept);
        drop(pending);
        self.filled.notify_waiters();
        Ok(keyless)
    }

    /// Queues the deletion of an object whose final state or key is not known: the one whose newest queued or known state satisfies
    /// `is_gone`. Looks under `likely_key` first, and searches all objects if it is not there.
    ///
    /// # Errors
    /// The queue is closed.
    pub(super) fn delete_where(
        &self,
        likely_key: &ObjectKey,
        is_gone: impl Fn(&V) -> bool,
    ) -> Result<(), QueueError> {
        let mut pending = self.lock_open()?;
        pending.set_initial_population(0);
        pending.delete_where(&*self.known, likely_key, is_gone);
        drop(pending);
        self.filled.notify_waiters();
        Ok(())
    }

    /// The key that an object would be queued under.
    ///
    /// # Errors
    /// The object has no key.
    pub(super) fn key_of(&self, object: &V) -> Result<ObjectKey, KeyError> {
        key_of(&self.key, object)
    }

    /// Queues the known state of each known object of which nothing is queued, so that it is delivered again. Other objects are about
    /// to be delivered anyway, and their known state is outdated. Does nothing if the queue is closed.
    pub fn resync(&self) {
        let Ok(mut pending) = self.lock_open() else {
            return;
        };
        pending.resync(&*self.known);
        drop(pending);
        self.filled.notify_waiters();
    }

    /// Whether deltas of a resync still wait.
    #[must_use]
    pub fn is_resyncing(&self) -> bool {
        self.lock().is_resyncing()
    }

    /// Takes the deltas of the first object, oldest first, and calls `process` with them while the queue is locked. `process` must not
    /// call this queue, and should be quick. Its last argument says whether the deltas are part of the initial population.
    ///
    /// The deltas count as processed whatever `process` returns, even if it panics; nothing is queued again (as in client-go since
    /// Kubernetes 1.33). Returns `None` if nothing is queued.
    pub fn pop<E>(
        &self,
        process: impl FnOnce(&ObjectKey, &[Delta<V>], bool) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        // Declared before the lock, so it is dropped after it: a woken task finds the queue unlocked.
        let mut waiters = Waiters {
            notify: &self.room,
            wake: false,
        };
        // The same holds for these: the destructors of objects are user code.
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

    /// For the consumer: waits until the queue has synced although nothing is queued, or is closed. An empty first replacement does that,
    /// and so does a first change that deletes an unknown object; [`DeltaFifo::filled`] returns for neither. A sync by
    /// [`DeltaFifo::pop`] does not wake a task that waits here. Safe to cancel.
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
            // Registered before the check, so that no notification between the check and the wait is missed.
            notified.as_mut().enable();
            if is_over(&self.lock()) {
                return;
            }
            notified.await;
        }
    }

    /// Whether the bound is reached, so that a producer should pause.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full_of(&self.lock())
    }

    fn is_full_of(&self, pending: &PendingDeltas<V>) -> bool {
        pending.delta_count() >= self.pending_max
    }

    /// Whether the initial population has been processed: that is the first replacement, or nothing if another change was queued before
    /// it. Once true, it stays true.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.lock().has_synced()
    }

    /// Closes the queue: it accepts no more changes; waiting deltas can still be popped. Wakes all waiting tasks.
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

    /// The number of objects that have queued deltas.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no object is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of queued deltas, of all objects together.
    #[must_use]
    pub fn delta_count(&self) -> usize {
        self.lock().delta_count()
    }

    /// A panic under the lock leaves the queue consistent: only `process` can panic there, and no change of the queue is half done while
    /// it runs.
    fn lock(&self) -> MutexGuard<'_, PendingDeltas<V>> {
        self.pending.lock()
    }

    /// Locks the queue, unless it is closed.
    fn lock_open(&self) -> Result<MutexGuard<'_, PendingDeltas<V>>, QueueError> {
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

/// Wakes waiting tasks when dropped, also by a panic.
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
