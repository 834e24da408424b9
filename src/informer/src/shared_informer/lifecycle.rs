//! The phases of an informer and its tasks: created, started, synced, ended.

use std::pin::Pin;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::dispatcher::Dispatcher;
use crate::upstream::driver::Collection;

/// Reads the collection into the queue, until the queue is closed.
type ReadTask = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InformerPhase {
    Created,
    Started,
    Synced,
    /// Shut down before the store held the initial list.
    NeverSynced,
}

/// The tasks of one informer, and the phase that it has reached.
pub(super) struct Lifecycle {
    collection: Collection,
    /// `None` once it was started or dropped.
    read_task: Mutex<Option<ReadTask>>,
    phase: watch::Sender<InformerPhase>,
    /// Each running task holds a receiver. When no receiver is left, all tasks have ended, whether they returned or panicked.
    alive: watch::Sender<()>,
}

impl Lifecycle {
    pub(super) fn new(collection: Collection, read_task: ReadTask) -> Self {
        Self {
            collection,
            read_task: Mutex::new(Some(read_task)),
            phase: watch::Sender::new(InformerPhase::Created),
            alive: watch::Sender::new(()),
        }
    }

    pub(super) const fn collection(&self) -> &Collection {
        &self.collection
    }

    fn read_task(&self) -> MutexGuard<'_, Option<ReadTask>> {
        self.read_task.lock()
    }

    pub(super) fn start<T: Send + Sync + 'static>(
        self: &Arc<Self>,
        dispatcher: &Arc<Dispatcher<T>>,
    ) {
        // The lock is held until both receivers exist, so that a concurrent shutdown waits for these tasks.
        let mut not_started = self.read_task();
        let Some(read_task) = not_started.take() else {
            return;
        };
        let (reader_alive, dispatcher_alive) = (self.alive.subscribe(), self.alive.subscribe());
        drop(not_started);
        self.phase.send_replace(InformerPhase::Started);
        tokio::spawn(async move {
            read_task.await;
            drop(reader_alive);
        });
        let (dispatcher, lifecycle) = (Arc::clone(dispatcher), Arc::clone(self));
        tokio::spawn(async move {
            dispatcher
                .run(|| {
                    lifecycle.phase.send_replace(InformerPhase::Synced);
                })
                .await;
            drop(dispatcher_alive);
        });
    }

    pub(super) fn is_started(&self) -> bool {
        *self.phase.borrow() != InformerPhase::Created
    }

    pub(super) fn has_synced(&self) -> bool {
        *self.phase.borrow() == InformerPhase::Synced
    }

    pub(super) async fn synced(&self) -> Result<(), NotSynced> {
        let mut phases = self.phase.subscribe();
        // `self` owns the sender, so the channel stays open.
        let synced = phases
            .wait_for(|phase| matches!(phase, InformerPhase::Synced | InformerPhase::NeverSynced))
            .await;
        if synced.is_ok_and(|phase| *phase == InformerPhase::Synced) {
            return Ok(());
        }
        Err(NotSynced {
            collection: self.collection.clone(),
        })
    }

    /// Waits until all tasks have ended; the caller has closed their queue. The informer can no longer be started. Safe to cancel.
    pub(super) async fn ended(&self) {
        self.drop_read_task();
        self.alive.closed().await;
        self.end_phase();
    }

    /// Ends an informer that was never started.
    pub(super) fn end_unstarted(&self) {
        self.drop_read_task();
        self.end_phase();
    }

    /// Drops the read task of an informer that was not started, so that it cannot be started later.
    fn drop_read_task(&self) {
        let read_task = self.read_task().take();
        // Dropped after the lock is released: the task owns values of the user, whose destructors may call the informer.
        drop(read_task);
    }

    fn end_phase(&self) {
        self.phase.send_if_modified(|phase| {
            let is_unsynced = *phase != InformerPhase::Synced;
            if is_unsynced {
                *phase = InformerPhase::NeverSynced;
            }
            is_unsynced
        });
    }
}

/// The informer was shut down before it held its initial list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer of {} was shut down before it held its initial list", collection.gvr)]
pub struct NotSynced {
    /// The collection that the informer reads.
    pub collection: Collection,
}
