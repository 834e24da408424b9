//! Workers on the runtime's blocking threads that call handlers. The scheduler decides how many there are.
//!
//! A stuck handler occupies a thread. As many can be stuck at the same time as the runtime has free blocking threads (tokio's
//! `max_blocking_threads`, 512 by default); the next one stops delivery to all handlers.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::scheduler::{Scheduler, StartOrder, WatchdogAction, WorkerId};

/// The time between two checks of the watchdog. Long enough that handlers that do not block are rarely considered overdue; short enough
/// that a handler that blocks hardly delays others.
const WATCHDOG_INTERVAL: Duration = Duration::from_millis(1);

/// A task that workers serve: a listener with waiting notifications.
pub(super) trait PoolTask: Send + Sync + 'static {
    /// A buffer that a worker keeps and reuses for each task, so that serving does not allocate.
    type Batch: Default + Send;

    /// Delivers one batch, on a thread that may block. Returns whether more waits.
    fn serve(&self, batch: &mut Self::Batch) -> bool;
}

/// The workers. Clones are handles of the same pool.
#[derive(Debug)]
pub(super) struct HandlerPool<S> {
    shared: Arc<PoolState<S>>,
}

#[derive(Debug)]
struct PoolState<S> {
    runtime: Handle,
    scheduler: Mutex<Scheduler<Arc<S>>>,
    idle: Notify,
}

impl<S: PoolTask> HandlerPool<S> {
    /// A pool without workers; they are started when there is something to do.
    pub(super) fn new(runtime: Handle) -> Self {
        // At least two, so that one handler that blocks does not delay the others until the watchdog's first check.
        let width = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
        Self {
            shared: Arc::new(PoolState {
                runtime,
                scheduler: Mutex::new(Scheduler::new(width)),
                idle: Notify::new(),
            }),
        }
    }

    /// Schedules tasks. The caller ensures that each is in the pool at most once.
    pub(super) fn serve(&self, ready: impl IntoIterator<Item = Arc<S>>) {
        let order = self.shared.locked().push(ready);
        self.shared.execute(order);
    }

    /// Waits until no worker is left. Safe to cancel.
    pub(super) async fn idle(&self) {
        loop {
            let notified = self.shared.idle.notified();
            if self.shared.locked().is_idle() {
                return;
            }
            notified.await;
        }
    }
}

impl<S: PoolTask> PoolState<S> {
    fn locked(&self) -> MutexGuard<'_, Scheduler<Arc<S>>> {
        self.scheduler.lock()
    }

    fn execute(self: &Arc<Self>, order: StartOrder) {
        match order {
            StartOrder::Nothing => {}
            StartOrder::Worker => self.start_workers(1),
            StartOrder::Watchdog => {
                self.start_watchdog();
            }
        }
    }

    #[cfg(not(feature = "sim"))]
    fn start_watchdog(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        self.runtime.spawn_blocking(move || shared.run_watchdog());
    }

    // In a simulation a worker is a task that ends before another task runs: no handler is overdue.
    #[cfg(feature = "sim")]
    fn start_watchdog(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(WATCHDOG_INTERVAL).await;
                match shared.locked().check_workers() {
                    WatchdogAction::Start(count) => shared.start_workers(count),
                    WatchdogAction::End => break,
                }
            }
            shared.idle.notify_waiters();
        });
    }

    #[cfg(feature = "sim")]
    fn start_workers(self: &Arc<Self>, count: usize) {
        for _ in 0..count {
            let shared = Arc::clone(self);
            self.runtime.spawn(async move { shared.run_worker() });
        }
    }

    #[cfg(not(feature = "sim"))]
    fn start_workers(self: &Arc<Self>, count: usize) {
        for _ in 0..count {
            let shared = Arc::clone(self);
            self.runtime.spawn_blocking(move || shared.run_worker());
        }
    }

    fn run_worker(self: Arc<Self>) {
        let worker = self.locked().begin();
        let slot = WorkerSlot {
            shared: &self,
            worker,
        };
        let mut batch = S::Batch::default();
        // A task with more waiting goes to the end, so that no other task waits for a long queue.
        let mut unfinished = None;
        loop {
            let (next, order) = self.locked().next(worker, unfinished.take());
            self.execute(order);
            let Some(task) = next else {
                break;
            };
            if task.serve(&mut batch) {
                unfinished = Some(task);
            }
        }
        drop(slot);
    }

    #[cfg(not(feature = "sim"))]
    fn run_watchdog(self: Arc<Self>) {
        loop {
            // Used as a sleep: this thread is never unparked.
            std::thread::park_timeout(WATCHDOG_INTERVAL);
            let action = self.locked().check_workers();
            match action {
                WatchdogAction::Start(count) => self.start_workers(count),
                WatchdogAction::End => break,
            }
        }
        self.idle.notify_waiters();
    }
}

/// Registers a worker with the scheduler until it is dropped, also by a panic.
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
