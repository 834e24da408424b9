//! Takes deltas out of the queue, stores them, and distributes notifications to handlers and streams, one batch after the other.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::changes::{Audience, apply};
use crate::failure_recorder::FailureRecorder;
use crate::processor::{DeferredWork, JoinOptions};
use crate::{
    Cached, Delta, DeltaFifo, Indexer, InformerCounts, InitialState, Notification, Processor,
    WatchFailure,
};

/// Objects whose deltas are stored and distributed in one batch. Handlers that are being added wait for the end of a batch.
const BATCH_LEN_MAX: usize = 256;

/// The only consumer of the queue.
pub(super) struct Dispatcher<T: Send + Sync + 'static> {
    store: Arc<Indexer<Cached<T>>>,
    queue: Arc<DeltaFifo<Cached<T>>>,
    processor: Processor<T>,
    recorder: FailureRecorder,
    /// Held while a batch is stored and distributed, and while a handler is added. So a new handler receives each change exactly
    /// once: within its initial state, or as a notification.
    order: Mutex<()>,
}

/// Whether the queue still has deltas after a batch.
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
        recorder: FailureRecorder,
    ) -> Self {
        Self {
            store,
            queue,
            processor,
            recorder,
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
        self.recorder.counts().snapshot()
    }

    /// Closes the queue: nothing more is read, and changes that were read are still distributed.
    pub(super) fn close(&self) {
        self.queue.close();
    }

    /// Calls `add` to add a handler or stream, with a snapshot of the state that precedes the next change.
    pub(super) fn join<R>(&self, add: impl FnOnce(&Processor<T>, JoinOptions<'_, T>) -> R) -> R {
        let mut deferred = self.processor.deferred_work();
        let _order = self.order();
        let snapshot = self.store.snapshot();
        let options = JoinOptions {
            initial_state: InitialState::new(snapshot.len(), snapshot.into_iter()),
            deferred: &mut deferred,
        };
        add(&self.processor, options)
    }

    /// Distributes changes until the queue is closed and empty. Calls `synced` once, when the initial list has been stored and
    /// distributed.
    pub(super) async fn run(&self, synced: impl Fn()) {
        let (mut is_synced, mut resyncs) = (false, false);
        loop {
            // Every branch is safe to cancel: it only waits.
            tokio::select! {
                () = self.queue.filled() => {}
                // An empty initial list queues no deltas.
                () = self.queue.synced_without_deltas(), if !is_synced => {}
                // Resyncs run one after the other: a handler that becomes due while one runs takes part in the next.
                () = self.resync_due(), if !self.queue.is_resyncing() => {
                    if self.processor.resync_wanted(Instant::now().into_std()) {
                        self.queue.resync();
                        resyncs = true;
                    }
                    continue;
                }
            }
            // A full queue with `Overflow::Block` must not delay the end: a closed queue is drained without waiting.
            tokio::select! {
                () = self.processor.ready() => {}
                () = self.queue.closed() => {}
            }
            let rest = self.dispatch_batch();
            if resyncs && !self.queue.is_resyncing() {
                resyncs = false;
                self.processor.resync_done();
            }
            if !is_synced && self.queue.has_synced() {
                is_synced = true;
                self.processor.initial_list_done();
                synced();
            }
            if rest == QueueRest::Nothing && self.queue.is_closed() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn dispatch_batch(&self) -> QueueRest {
        let mut failures = Vec::new();
        let rest = self.store_and_distribute(&mut failures);
        // Reported after the locks are released: the hook is user code, and may call the informer.
        for failure in &failures {
            self.recorder.report(failure);
        }
        rest
    }

    /// Stores and distributes one batch. Appends to `failures` what could not be stored.
    fn store_and_distribute(&self, failures: &mut Vec<WatchFailure>) -> QueueRest {
        let mut deferred = self.processor.deferred_work();
        let _order = self.order();
        let mut batch = PendingBatch {
            processor: &self.processor,
            notifications: Vec::new(),
            deferred: &mut deferred,
        };
        for _ in 0..BATCH_LEN_MAX {
            let popped = self.queue.pop(|key, deltas, in_initial_list| {
                for delta in deltas {
                    match apply(&self.store, key, delta, in_initial_list) {
                        Ok(Some((notification, audience))) => batch.add(notification, audience),
                        Ok(None) => batch.discard(delta),
                        Err(failure) => {
                            failures.push(failure);
                            batch.discard(delta);
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

    /// Waits until the resync of some handler is due.
    async fn resync_due(&self) {
        loop {
            let Some(at) = self.processor.next_resync_at() else {
                self.processor.resync_changed().await;
                continue;
            };
            // Both branches are safe to cancel: they only wait.
            tokio::select! {
                () = tokio::time::sleep_until(at.into()) => return,
                () = self.processor.resync_changed() => {}
            }
        }
    }

    /// The only user code that runs under this lock are key and index functions. They must not call the informer, and their panics
    /// are caught.
    fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock()
    }
}

/// The notifications of one batch. They are distributed in order when this is dropped.
struct PendingBatch<'a, T: Send + Sync + 'static> {
    processor: &'a Processor<T>,
    notifications: Vec<Notification<T>>,
    deferred: &'a mut DeferredWork<T>,
}

impl<T: Send + Sync + 'static> PendingBatch<'_, T> {
    /// Drops a delta that leads to no notification, once the locks are released.
    fn discard(&mut self, delta: &Delta<Cached<T>>) {
        self.deferred
            .discard_object(delta.subject.object().cloned());
    }

    fn add(&mut self, notification: Notification<T>, audience: Audience) {
        match audience {
            Audience::All => self.notifications.push(notification),
            Audience::Resync => {
                self.dispatch_pending();
                let mut resynced = vec![notification];
                self.processor
                    .distribute_resync_deferred(&resynced, self.deferred);
                self.deferred.discard_delivered(&mut resynced);
            }
        }
    }

    fn dispatch_pending(&mut self) {
        self.processor
            .distribute_all_deferred(&self.notifications, self.deferred);
        self.deferred.discard_delivered(&mut self.notifications);
    }
}

impl<T: Send + Sync + 'static> Drop for PendingBatch<'_, T> {
    fn drop(&mut self) {
        self.dispatch_pending();
    }
}
