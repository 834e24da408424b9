//! Decides how many worker threads serve the handlers that have waiting notifications. Pure: it starts no threads itself.
//!
//! A thread per handler would have to be woken for each notification, and a thousand wake-ups cost far more than a thousand calls.
//! So a few workers go from handler to handler. A handler that blocks keeps its worker, and another worker must be started: while
//! any handler is ready, a watchdog checks the workers every millisecond. A worker that has been with the same handler for two checks
//! is overdue, and no longer counts as active.
//!
//! Invariant: while any handler is ready, a worker is being started or the watchdog is running.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Handlers may block for a while without being stuck. Then the number of active workers is doubled, up to this bound.
const WIDTH_MAX: usize = 64;

/// How long a worker has been with its handler, in checks of the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerAge {
    /// No check yet.
    Fresh,
    /// One check.
    Seen,
    /// Two checks or more.
    Overdue,
}

/// The thread that the caller must start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartOrder {
    Nothing,
    Worker,
    Watchdog,
}

/// What the watchdog does after a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchdogAction {
    /// Start this many workers, and check again.
    Start(usize),
    /// End: no handler is ready.
    End,
}

/// Identifies a worker. Ids are never reused, so ending a worker twice cannot affect another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkerId(u64);

/// Handlers that wait for a worker, and the workers.
#[derive(Debug)]
pub(super) struct Scheduler<L> {
    ready: VecDeque<L>,
    workers: HashMap<WorkerId, WorkerAge, RandomState>,
    last_worker: u64,
    /// How many of `workers` are overdue.
    overdue: usize,
    /// Workers that were ordered and have not begun.
    starting: usize,
    has_watchdog: bool,
    /// The wanted number of active workers, if enough handlers are ready.
    width: usize,
    width_min: usize,
}

impl<L> Scheduler<L> {
    /// `width_min`, at least 1, is the number of workers for handlers that do not block.
    pub(super) fn new(width_min: usize) -> Self {
        Self {
            ready: VecDeque::new(),
            workers: HashMap::default(),
            last_worker: 0,
            overdue: 0,
            starting: 0,
            has_watchdog: false,
            width: width_min,
            width_min,
        }
    }

    /// Adds handlers that have waiting notifications.
    pub(super) fn push(&mut self, ready: impl IntoIterator<Item = L>) -> StartOrder {
        self.ready.extend(ready);
        self.next_order()
    }

    /// Registers a worker that was ordered and now begins.
    pub(super) fn begin(&mut self) -> WorkerId {
        self.starting = self.starting.saturating_sub(1);
        self.last_worker += 1;
        let worker = WorkerId(self.last_worker);
        self.workers.insert(worker, WorkerAge::Fresh);
        worker
    }

    /// Returns the next handler for a worker that has begun or is done with its handler, and what to start. `again` is that handler, if
    /// it has more waiting. Without a next handler the worker has ended.
    pub(super) fn next(&mut self, worker: WorkerId, again: Option<L>) -> (Option<L>, StartOrder) {
        self.ready.extend(again);
        let counted = usize::from(self.age(worker) != Some(WorkerAge::Overdue));
        let others = self.active().saturating_sub(counted);
        let next = if others < self.width {
            self.ready.pop_front()
        } else {
            None
        };
        if next.is_some() {
            self.set_age(worker, WorkerAge::Fresh);
        } else {
            self.end(worker);
        }
        (next, self.next_order())
    }

    /// Removes a worker. Does nothing if it has already ended.
    pub(super) fn end(&mut self, worker: WorkerId) {
        if let Some(age) = self.workers.remove(&worker) {
            self.overdue -= usize::from(age == WorkerAge::Overdue);
        }
    }

    /// One check of the watchdog: counts overdue workers, and orders replacements.
    pub(super) fn check_workers(&mut self) -> WatchdogAction {
        if self.ready.is_empty() {
            self.has_watchdog = false;
            self.width = self.width_min;
            return WatchdogAction::End;
        }
        let mut newly_overdue = 0;
        for age in self.workers.values_mut() {
            *age = match age {
                WorkerAge::Fresh => WorkerAge::Seen,
                WorkerAge::Seen => {
                    newly_overdue += 1;
                    WorkerAge::Overdue
                }
                WorkerAge::Overdue => WorkerAge::Overdue,
            };
        }
        self.overdue += newly_overdue;
        if 2 * newly_overdue >= self.width {
            self.width = (2 * self.width).min(WIDTH_MAX.max(self.width_min));
        }
        let starting = self
            .width
            .saturating_sub(self.active())
            .min(self.ready.len());
        self.starting += starting;
        WatchdogAction::Start(starting)
    }

    /// Whether no thread is running or about to start, and no handler is ready.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.workers.is_empty() && self.starting == 0 && !self.has_watchdog
    }

    /// Workers that are not overdue, including those being started.
    fn active(&self) -> usize {
        self.workers.len() - self.overdue + self.starting
    }

    /// What to start, so that the invariant holds.
    fn next_order(&mut self) -> StartOrder {
        if self.ready.is_empty() {
            StartOrder::Nothing
        } else if self.active() < self.width {
            self.starting += 1;
            StartOrder::Worker
        } else if self.has_watchdog {
            StartOrder::Nothing
        } else {
            self.has_watchdog = true;
            StartOrder::Watchdog
        }
    }

    fn age(&self, worker: WorkerId) -> Option<WorkerAge> {
        self.workers.get(&worker).copied()
    }

    fn set_age(&mut self, worker: WorkerId, new_age: WorkerAge) {
        if let Some(age) = self.workers.get_mut(&worker) {
            self.overdue -= usize::from(*age == WorkerAge::Overdue);
            *age = new_age;
            self.overdue += usize::from(new_age == WorkerAge::Overdue);
        }
    }
}

#[cfg(test)]
mod tests;
