//! From made over started and synced to ended.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::NotSynced;
use super::dispatcher::Dispatcher;
use crate::upstream::driver::Collection;

/// What reads the collection, until its queue is closed.
type ReadTask = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InformerPhase {
    Made,
    Started,
    Synced,
    /// Shut down before the initial list was there.
    NeverSynced,
}

/// Which tasks an informer has, and how far they are.
pub(super) struct Lifecycle {
    collection: Collection,
    reading: Mutex<Option<ReadTask>>,
    phase: watch::Sender<InformerPhase>,
    /// Each task holds a receiver: when none is left, all have ended, however they did.
    alive: watch::Sender<()>,
}

impl Lifecycle {
    pub(super) fn new(collection: Collection, reading: ReadTask) -> Self {
        Self {
            collection,
            reading: Mutex::new(Some(reading)),
            phase: watch::Sender::new(InformerPhase::Made),
            alive: watch::Sender::new(()),
        }
    }

    pub(super) const fn collection(&self) -> &Collection {
        &self.collection
    }

    fn reading(&self) -> MutexGuard<'_, Option<ReadTask>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start<T: Send + Sync + 'static>(self: &Arc<Self>, telling: &Arc<Dispatcher<T>>) {
        // Held until the tasks are counted, so that an end at the same time waits for them.
        let mut not_started = self.reading();
        let Some(reading) = not_started.take() else {
            return;
        };
        let (reads, alive) = (self.alive.subscribe(), self.alive.subscribe());
        drop(not_started);
        self.phase.send_replace(InformerPhase::Started);
        tokio::spawn(async move {
            reading.await;
            drop(reads);
        });
        let (telling, lifecycle) = (Arc::clone(telling), Arc::clone(self));
        tokio::spawn(async move {
            telling
                .run(|| {
                    lifecycle.phase.send_replace(InformerPhase::Synced);
                })
                .await;
            drop(alive);
        });
    }

    pub(super) fn is_started(&self) -> bool {
        *self.phase.borrow() != InformerPhase::Made
    }

    pub(super) fn has_synced(&self) -> bool {
        *self.phase.borrow() == InformerPhase::Synced
    }

    pub(super) async fn synced(&self) -> Result<(), NotSynced> {
        let mut phases = self.phase.subscribe();
        let over = |phase: &InformerPhase| {
            matches!(phase, InformerPhase::Synced | InformerPhase::NeverSynced)
        };
        // The sender is ours, so the channel stays open.
        let synced = phases.wait_for(over).await;
        if synced.is_ok_and(|phase| *phase == InformerPhase::Synced) {
            return Ok(());
        }
        Err(NotSynced {
            collection: self.collection.clone(),
        })
    }

    /// Waits until all tasks have ended; their queue is closed. Nothing can be started any more. Safe to cancel.
    pub(super) async fn ended(&self) {
        // Never started: it reads nothing.
        self.give_up_reading();
        self.alive.closed().await;
        self.end_phase();
    }

    /// Ends one that was never started.
    pub(super) fn end_unstarted(&self) {
        self.give_up_reading();
        self.end_phase();
    }

    fn give_up_reading(&self) {
        let reading = self.reading().take();
        // Not before the lock is released: it holds what is the user's.
        drop(reading);
    }

    fn end_phase(&self) {
        self.phase.send_if_modified(|phase| {
            let never = *phase != InformerPhase::Synced;
            if never {
                *phase = InformerPhase::NeverSynced;
            }
            never
        });
    }
}
