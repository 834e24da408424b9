//! Threads of the runtime's blocking pool that serve handlers, as the roster decides.
//!
//! At most so many handlers can be stuck at once as that pool has threads besides those in use (tokio's
//! `max_blocking_threads`, 512); the next one then holds up everybody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::scheduler::{Scheduler, StartOrder, WatchdogAction, WorkerId};

/// Between two looks of the standby. Long enough that handlers which do not block are rarely found overdue; short enough
/// that nobody notices being behind one that does.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Somebody who has something waiting.
pub(super) trait PoolTask: Send + Sync + 'static {
    /// What a worker keeps for the next one, so that serving allocates nothing.
    type Batch: Default + Send;

    /// Delivers some of what waits, on a thread that may block. False if nothing is left.
    fn serve(&self, batch: &mut Self::Batch) -> bool;
}

/// The workers. Clones are the same crew.
#[derive(Debug)]
pub(super) struct HandlerPool<S> {
    shared: Arc<PoolState<S>>,
}

#[derive(Debug)]
struct PoolState<S> {
    runtime: Handle,
    roster: Mutex<Scheduler<Arc<S>>>,
    idle: Notify,
}

impl<S: PoolTask> HandlerPool<S> {
    /// Nobody works until there is something to do.
    pub(super) fn new(runtime: Handle) -> Self {
        // Two at least: then a handler that blocks does not stop the others even until the first look.
        let width = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
        Self {
            shared: Arc::new(PoolState {
                runtime,
                roster: Mutex::new(Scheduler::new(width)),
                idle: Notify::new(),
            }),
        }
    }

    /// Serves these soon; each is here at most once.
    pub(super) fn serve(&self, ready: impl IntoIterator<Item = Arc<S>>) {
        let call = self.shared.locked().push(ready);
        self.shared.answer(call);
    }

    /// Until no worker is left. Safe to cancel.
    pub(super) async fn idle(&self) {
        loop {
            let left = self.shared.idle.notified();
            if self.shared.locked().is_idle() {
                return;
            }
            left.await;
        }
    }
}

impl<S: PoolTask> PoolState<S> {
    fn locked(&self) -> MutexGuard<'_, Scheduler<Arc<S>>> {
        // Nothing of a handler's runs under this lock.
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(self: &Arc<Self>, call: StartOrder) {
        match call {
            StartOrder::Nobody => {}
            StartOrder::Worker => self.start_workers(1),
            StartOrder::Standby => {
                let shared = Arc::clone(self);
                self.runtime.spawn_blocking(move || shared.stand_by());
            }
        }
    }

    fn start_workers(self: &Arc<Self>, count: usize) {
        for _ in 0..count {
            let shared = Arc::clone(self);
            self.runtime.spawn_blocking(move || shared.work());
        }
    }

    fn work(self: Arc<Self>) {
        let worker = self.locked().begin();
        let place = WorkerSlot {
            shared: &self,
            worker,
        };
        let mut batch = S::Batch::default();
        // Who has more waiting goes to the end: nobody waits for somebody's long queue.
        let mut again = None;
        loop {
            let (next, call) = self.locked().next(worker, again.take());
            self.answer(call);
            let Some(served) = next else {
                break;
            };
            if served.serve(&mut batch) {
                again = Some(served);
            }
        }
        drop(place);
    }

    fn stand_by(self: Arc<Self>) {
        loop {
            // This thread has nothing else to do, and nobody unparks it.
            std::thread::park_timeout(LOOK_EVERY);
            let look = self.locked().look();
            match look {
                WatchdogAction::Start(count) => self.start_workers(count),
                WatchdogAction::End => break,
            }
        }
        self.idle.notify_waiters();
    }
}

/// A worker's place, left also if something panics.
struct WorkerSlot<'a, S: PoolTask> {
    shared: &'a PoolState<S>,
    worker: WorkerId,
}

impl<S: PoolTask> Drop for WorkerSlot<'_, S> {
    fn drop(&mut self) {
        self.shared.locked().end(self.worker);
        self.shared.idle.notify_waiters();
    }
}

impl<S> Clone for HandlerPool<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}
