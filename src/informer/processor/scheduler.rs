//! Which threads serve the handlers that have something waiting. Pure: decides, starts nothing.
//!
//! A thread per handler would be woken for each notification, and a thousand wake-ups cost far more than a thousand calls.
//! So few workers go from handler to handler. A handler that blocks keeps its worker, and then another one is started:
//! while anything is ready, a standby looks every millisecond; a worker that has been with the same handler for two looks
//! is overdue and no longer counts.
//!
//! What must stay true: while anything is ready, a worker is being started or a standby is there.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Handlers may block for a while without being stuck: then workers are doubled up to this many, besides those overdue.
const WIDTH_MAX: usize = 64;

/// How long a worker has been with its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerAge {
    /// The standby has not looked since.
    Fresh,
    /// It has, once.
    Seen,
    /// More often.
    Overdue,
}

/// Who must be started, by whoever is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartOrder {
    Nobody,
    Worker,
    Standby,
}

/// What the standby does after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchdogAction {
    /// Starts so many workers and looks again.
    Start(usize),
    /// Ends: nothing is ready.
    End,
}

/// A worker, by a number that no other one is given: what is done twice for one that has ended meets nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkerId(u64);

/// Handlers that wait for a worker, and the workers.
#[derive(Debug)]
pub(super) struct Scheduler<L> {
    ready: VecDeque<L>,
    workers: HashMap<WorkerId, WorkerAge, RandomState>,
    last_worker: u64,
    overdue: usize,
    starting: usize,
    standby: bool,
    /// Workers wanted while enough is ready.
    width: usize,
    width_min: usize,
}

impl<L> Scheduler<L> {
    /// `width_min` workers, at least 1, serve handlers that do not block.
    pub(super) fn new(width_min: usize) -> Self {
        Self {
            ready: VecDeque::new(),
            workers: HashMap::default(),
            last_worker: 0,
            overdue: 0,
            starting: 0,
            standby: false,
            width: width_min,
            width_min,
        }
    }

    /// Handlers have something waiting.
    pub(super) fn push(&mut self, ready: impl IntoIterator<Item = L>) -> StartOrder {
        self.ready.extend(ready);
        self.call()
    }

    /// A worker begins that was called for.
    pub(super) fn begin(&mut self) -> WorkerId {
        self.starting = self.starting.saturating_sub(1);
        self.last_worker += 1;
        let worker = WorkerId(self.last_worker);
        self.workers.insert(worker, WorkerAge::Fresh);
        worker
    }

    /// A worker is done with its handler, which may have more waiting, or has begun: whom it serves next. None if it ends.
    pub(super) fn next(&mut self, worker: WorkerId, again: Option<L>) -> (Option<L>, StartOrder) {
        self.ready.extend(again);
        let counted = usize::from(self.stay(worker) != Some(WorkerAge::Overdue));
        let others = self.active().saturating_sub(counted);
        let next = if others < self.width {
            self.ready.pop_front()
        } else {
            None
        };
        if next.is_some() {
            self.set_stay(worker, WorkerAge::Fresh);
        } else {
            self.end(worker);
        }
        (next, self.call())
    }

    /// A worker ends; of one that has ended already nothing.
    pub(super) fn end(&mut self, worker: WorkerId) {
        if let Some(stay) = self.workers.remove(&worker) {
            self.overdue -= usize::from(stay == WorkerAge::Overdue);
        }
    }

    /// The standby looks.
    pub(super) fn look(&mut self) -> WatchdogAction {
        if self.ready.is_empty() {
            self.standby = false;
            self.width = self.width_min;
            return WatchdogAction::End;
        }
        let mut newly_overdue = 0;
        for stay in self.workers.values_mut() {
            *stay = match stay {
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
        let missing = self.width.saturating_sub(self.active());
        let starting = missing.min(self.ready.len());
        self.starting += starting;
        WatchdogAction::Start(starting)
    }

    /// Whether nobody works, nor is about to.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.workers.is_empty() && self.starting == 0 && !self.standby
    }

    /// Workers that can be counted on, or will be.
    fn active(&self) -> usize {
        self.workers.len() - self.overdue + self.starting
    }

    fn call(&mut self) -> StartOrder {
        if self.ready.is_empty() {
            StartOrder::Nobody
        } else if self.active() < self.width {
            self.starting += 1;
            StartOrder::Worker
        } else if self.standby {
            StartOrder::Nobody
        } else {
            self.standby = true;
            StartOrder::Standby
        }
    }

    fn stay(&self, worker: WorkerId) -> Option<WorkerAge> {
        self.workers.get(&worker).copied()
    }

    fn set_stay(&mut self, worker: WorkerId, now: WorkerAge) {
        if let Some(stay) = self.workers.get_mut(&worker) {
            self.overdue -= usize::from(*stay == WorkerAge::Overdue);
            *stay = now;
            self.overdue += usize::from(now == WorkerAge::Overdue);
        }
    }
}

#[cfg(test)]
mod tests;
