//! Takes changes out of the queue, stores them, and tells them to everybody: one after the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::changes::{Audience, apply};
use crate::informer::failure_recorder::FailureRecorder;
use crate::informer::processor::{DeferredWork, JoinOptions};
use crate::informer::{
    Cached, Delta, DeltaFifo, Indexer, InformerCounts, InitialState, Notification, Processor,
    WatchFailure,
};

/// Objects whose changes are stored and told at once, while handlers that want to join wait.
const BATCH_LEN_MAX: usize = 256;

/// The queue's one consumer.
pub(super) struct Dispatcher<T: Send + Sync + 'static> {
    store: Arc<Indexer<Cached<T>>>,
    queue: Arc<DeltaFifo<Cached<T>>>,
    processor: Processor<T>,
    journal: FailureRecorder,
    /// Held while changes are stored and told, and while somebody joins: so each change reaches everybody either
    /// as present state or as a change.
    order: Mutex<()>,
}

/// What is left in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueRest {
    Nothing,
    Something,
}

impl<T: Send + Sync + 'static> Dispatcher<T> {
    pub(super) const fn new(
        store: Arc<Indexer<Cached<T>>>,
        queue: Arc<DeltaFifo<Cached<T>>>,
        processor: Processor<T>,
        journal: FailureRecorder,
    ) -> Self {
        Self {
            store,
            queue,
            processor,
            journal,
            order: Mutex::new(()),
        }
    }

    pub(super) const fn store(&self) -> &Arc<Indexer<Cached<T>>> {
        &self.store
    }

    pub(super) const fn processor(&self) -> &Processor<T> {
        &self.processor
    }

    pub(super) fn counts(&self) -> InformerCounts {
        self.journal.counts().snapshot()
    }

    /// Nothing more is read; what was read will still be told.
    pub(super) fn close(&self) {
        self.queue.close();
    }

    /// Lets somebody in, with the state that the changes from now on belong to.
    pub(super) fn join<R>(&self, join: impl FnOnce(&Processor<T>, JoinOptions<'_, T>) -> R) -> R {
        let mut after = self.processor.after_unlock();
        let _order = self.order();
        let snapshot = self.store.snapshot();
        let joining = JoinOptions {
            present: InitialState::new(snapshot.len(), snapshot.into_iter()),
            after: &mut after,
        };
        join(&self.processor, joining)
    }

    /// Tells until the queue is closed and empty; calls `synced` once, when the initial list has been stored and told.
    pub(super) async fn run(&self, synced: impl Fn()) {
        let (mut is_synced, mut resyncs) = (false, false);
        loop {
            // All may be dropped at any point: they only wait.
            tokio::select! {
                () = self.queue.filled() => {}
                // An initial list of nothing.
                () = self.queue.synced_without_deltas(), if !is_synced => {}
                // One after the other: those who are due while one runs are told all objects by the next.
                () = self.resync_due(), if !self.queue.is_resyncing() => {
                    if self.processor.resync_wanted(Instant::now().into_std()) {
                        self.queue.resync();
                        resyncs = true;
                    }
                    continue;
                }
            }
            // A handler that holds everybody back does not hold up the end.
            tokio::select! {
                () = self.processor.ready() => {}
                () = self.queue.closed() => {}
            }
            let left = self.tell_batch();
            if resyncs && !self.queue.is_resyncing() {
                resyncs = false;
                self.processor.resync_done();
            }
            if !is_synced && self.queue.has_synced() {
                is_synced = true;
                self.processor.initial_list_done();
                synced();
            }
            if left == QueueRest::Nothing && self.queue.is_closed() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn tell_batch(&self) -> QueueRest {
        let mut failures = Vec::new();
        let left = self.tell_batch_but(&mut failures);
        // The hook is the user's, and may call the informer.
        for failure in &failures {
            self.journal.tell(failure);
        }
        left
    }

    /// Tells a batch, and gives back what could not be stored.
    fn tell_batch_but(&self, failures: &mut Vec<WatchFailure>) -> QueueRest {
        let mut after = self.processor.after_unlock();
        let _order = self.order();
        let mut news = PendingBatch {
            processor: &self.processor,
            gathered: Vec::new(),
            after: &mut after,
        };
        for _ in 0..BATCH_LEN_MAX {
            let popped = self.queue.pop(|key, deltas, in_initial_list| {
                for delta in deltas {
                    match apply(&self.store, key, delta, in_initial_list) {
                        Ok(Some((notification, audience))) => news.add(notification, audience),
                        Ok(None) => news.discard(delta),
                        Err(failure) => {
                            failures.push(failure);
                            news.discard(delta);
                        }
                    }
                }
                Ok::<_, WatchFailure>(())
            });
            if popped.is_none() {
                return QueueRest::Nothing;
            }
        }
        QueueRest::Something
    }

    /// When a handler wants all objects told again.
    async fn resync_due(&self) {
        loop {
            let Some(at) = self.processor.next_resync_at() else {
                self.processor.resync_changed().await;
                continue;
            };
            // Both may be dropped at any point: they only wait.
            tokio::select! {
                () = tokio::time::sleep_until(at.into()) => return,
                () = self.processor.resync_changed() => {}
            }
        }
    }

    /// Nothing of the user's runs under this lock but key and index functions, which may not call the informer and whose
    /// panics are caught.
    fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notifications of one batch; told when dropped, in order.
struct PendingBatch<'a, T: Send + Sync + 'static> {
    processor: &'a Processor<T>,
    gathered: Vec<Notification<T>>,
    after: &'a mut DeferredWork<T>,
}

impl<T: Send + Sync + 'static> PendingBatch<'_, T> {
    /// Nobody is told of it.
    fn discard(&mut self, delta: &Delta<Cached<T>>) {
        self.after.discard_object(delta.subject.object().cloned());
    }

    fn add(&mut self, notification: Notification<T>, audience: Audience) {
        match audience {
            Audience::All => self.gathered.push(notification),
            Audience::Resync => {
                self.dispatch_pending();
                let mut again = vec![notification];
                self.processor.tell_resync(&again, self.after);
                self.after.discard_told(&mut again);
            }
        }
    }

    fn dispatch_pending(&mut self) {
        self.processor.tell_all(&self.gathered, self.after);
        self.after.discard_told(&mut self.gathered);
    }
}

impl<T: Send + Sync + 'static> Drop for PendingBatch<'_, T> {
    fn drop(&mut self) {
        self.dispatch_pending();
    }
}
