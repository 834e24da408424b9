//! Compares what upstream answers with what memory would have answered, for requests that a serving rule forwards (decision 63). Nothing here
//! reaches a client, and nothing here may keep the forwarded answer waiting.
//!
//! ```text
//! forwarded body ─▶ ShadowTee ─▶ client
//!                       └─ what has room ─▶ TeeReader ─┐
//!                          memory's answer ────────────┴─▶ ObjectSet or SequenceComparison ─▶ ShadowRecorder
//! ```
//!
//! `serve` obtains memory's answer and runs the comparison. Here are its parts: `tee` copies the forwarded body, `object` reads lists and events,
//! `object_set` compares states, `sequence` compares streams of events, `recorder` counts and logs what they find. [`Shadow`] bounds the
//! cost of all comparisons together.

mod byte_budget;
mod object;
mod object_set;
mod recorder;
mod sequence;
mod tee;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::JoinSet;

use crate::admission::Admission;
use crate::config::AdmissionLimits;
use crate::fairness::queued_permits::QueuedPermits;
use crate::fairness::{Peer, Permit, Permits};
use crate::metrics::{ShadowMetrics, VerbLabel};
use crate::resource::Gvr;

pub(crate) use byte_budget::{ByteBudget, HeldBytes};
pub(crate) use object::{ObjectHasher, ShadowFrame, ShadowList};
pub(crate) use object_set::{ObjectSet, differences};
use recorder::DifferenceLog;
pub(crate) use recorder::{Difference, ShadowRecorder};
pub(crate) use sequence::{ComparedSide, SequenceComparison};
pub(crate) use tee::{ShadowTee, TeeItem, TeeReader};

/// Watches that are compared at a time. Each holds the cursor of a watch and a queue; what grows
/// with upstream's answer counts against [`HELD_BYTES_MAX`]: waiting events, unfinished frames, initial events.
const WATCHES_MAX: usize = 256;
/// Watches that collect initial events at a time.
const INITIAL_MAX: usize = 4;
/// Lists that are compared, or wait for it, at a time.
const LISTS_MAX: usize = 64;
/// Bytes of answers that wait to be compared, and of lists that are being compared: enough for the pods of a large cluster.
const HELD_BYTES_MAX: usize = 256 << 20;

/// The comparisons of one service, and their bounds. Clones share them.
#[derive(Clone, Debug)]
pub struct Shadow(Arc<ShadowState>);

#[derive(Debug)]
struct ShadowState {
    metrics: ShadowMetrics,
    watches: Permits,
    lists: Permits,
    budget: ByteBudget,
    /// One permit: comparisons use one core at most.
    turn: Arc<Semaphore>,
    initial: Semaphore,
    /// Comparisons take no permits from clients.
    admission: Admission,
    rewinding: QueuedPermits,
    hasher: ObjectHasher,
    log: Arc<Mutex<DifferenceLog>>,
    /// They end when this is dropped.
    tasks: Mutex<JoinSet<()>>,
}

/// The permit to compare one answer.
#[derive(Debug)]
pub(crate) struct ShadowPermit {
    _permit: Permit,
    open: Option<IntGauge>,
}

impl Drop for ShadowPermit {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.dec();
        }
    }
}

impl Shadow {
    /// Comparisons that are counted here.
    #[must_use]
    pub fn new(metrics: ShadowMetrics) -> Self {
        let limits = AdmissionLimits {
            connections_max: 0,
            watches_max: WATCHES_MAX,
            lists_max: 1,
            lists_waiting_max: LISTS_MAX + WATCHES_MAX,
            list_wait_max: Duration::from_secs(60),
            list_stall_max: Duration::from_secs(60),
            memory_max: 0,
        };
        Self(Arc::new(ShadowState {
            metrics,
            watches: Permits::new(WATCHES_MAX),
            lists: Permits::new(LISTS_MAX),
            budget: ByteBudget::new(HELD_BYTES_MAX),
            turn: Arc::new(Semaphore::new(1)),
            initial: Semaphore::new(INITIAL_MAX),
            admission: Admission::new(limits, None),
            rewinding: QueuedPermits::new(1, LISTS_MAX),
            hasher: ObjectHasher::default(),
            log: Arc::default(),
            tasks: Mutex::default(),
        }))
    }

    /// A permit to compare one answer; `None` if too many are being compared.
    pub(crate) fn permit(&self, verb: VerbLabel, peer: Peer) -> Option<ShadowPermit> {
        let (permits, open) = match verb {
            VerbLabel::List => (&self.0.lists, None),
            VerbLabel::Watch => (&self.0.watches, Some(self.0.metrics.watches.clone())),
        };
        let permit = permits.try_acquire(peer)?;
        if let Some(open) = &open {
            open.inc();
        }
        Some(ShadowPermit {
            _permit: permit,
            open,
        })
    }

    pub(crate) fn recorder(&self, resource: &Gvr, verb: VerbLabel) -> ShadowRecorder {
        let counters = self.0.metrics.of(resource, verb);
        ShadowRecorder::new(resource.clone(), verb, counters, Arc::clone(&self.0.log))
    }

    pub(crate) fn budget(&self) -> &ByteBudget {
        &self.0.budget
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.0.admission
    }

    pub(crate) fn rewinding(&self) -> &QueuedPermits {
        &self.0.rewinding
    }

    pub(crate) fn hasher(&self) -> &ObjectHasher {
        &self.0.hasher
    }

    /// Waits for the turn to use a core. To be held while something is parsed or compared, and not while anything is waited for.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.turn).acquire_owned().await.ok()
    }

    /// A permit to collect initial events; `None` if too many do.
    pub(crate) fn initial(&self) -> Option<SemaphorePermit<'_>> {
        self.0.initial.try_acquire().ok()
    }

    /// Runs a comparison beside the request.
    pub(crate) fn spawn(&self, comparison: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(comparison);
    }
}
