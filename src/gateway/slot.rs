//! One cached resource: its cache, and the task that keeps it filled as long as clients use it.

mod keeper;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::freshness::ResourceFreshness;
use super::recorders::{ResourceRecorder, StreamRecorder};
use crate::admin::CheckOutcome;
use crate::cache::{Observer, Retention};
use crate::fairness::{Peer, Permit, Permits};
use crate::metrics::{GiveUpReason, Label};
use crate::resource::{Encoding, ResourceVersion};
use crate::upstream::client::Client;
use crate::upstream::discovery::DiscoveredResource;
use crate::view::{Hub, ServedResource};
use keeper::CacheKeeper;

/// Requests of one resource that may be forwarded at a time while it has no cache because upstream is slow or fails. More would be the
/// load that the cache is there to keep away from upstream. Clients share the permits.
const FORWARDS_MAX: usize = 32;

/// How long after a forwarded list its client may start a watch from the list's version: it must read a large list first.
const FORWARDED_LIST_AGE_MAX: Duration = Duration::from_secs(60);

/// How long after the loss of upstream's history clients may return with versions of it. Their watches have ended, and client-go waits at
/// most 30 s before it retries. A longer time would do harm: where no new cache can be filled, the versions of the new history may stay
/// below those of the lost one for days, and clients that start from one of them would list again all that time.
const LOSS_AGE_MAX: Duration = Duration::from_secs(90);

/// The newest version that clients may know from a history that upstream no longer has.
#[derive(Debug, Default)]
pub(super) struct HistoryLoss(std::sync::Mutex<Option<(ResourceVersion, Instant)>>);

impl HistoryLoss {
    /// Records the loss of a history whose newest version is `newest`.
    fn record(&self, newest: ResourceVersion) {
        let version = self.version().max(newest);
        *self.state() = Some((version, Instant::now()));
    }

    /// The newest version of all lost histories; zero if none was lost.
    fn version(&self) -> ResourceVersion {
        self.state()
            .map_or_else(Default::default, |(version, _)| version)
    }

    /// Whether a client may have this version from a history that was lost recently.
    pub(super) fn covers(&self, version: ResourceVersion) -> bool {
        let is_covered = |(lost, at): (_, Instant)| version <= lost && at.elapsed() < LOSS_AGE_MAX;
        self.state().is_some_and(is_covered)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Option<(ResourceVersion, Instant)>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The state of a slot's cache.
#[derive(Clone, Debug)]
pub(super) enum SlotState {
    /// Not ready yet, for this reason.
    Waiting(&'static str),
    /// Requests are served from it.
    Ready(ServedResource),
    /// There is no cache, for this reason, and requests are forwarded. Filling it is retried.
    GivenUp(GiveUpReason),
    /// Upstream has the resource, but not in this encoding.
    OtherEncoding,
    /// Upstream no longer has the resource.
    Gone,
    /// The slot was closed.
    Closed,
}

/// Limits for reading a resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadLimits {
    /// Longest watch frame in bytes.
    pub(super) frame_len_max: usize,
    /// How long the events of a busy resource may be delayed to be delivered together.
    pub(super) coalesce_delay_max: Duration,
    /// Resident bytes of the process beyond which no cache is started and some are evicted; 0 means no limit.
    pub(super) memory_max: usize,
}

/// The inputs of a slot's task.
pub(super) struct SlotParts {
    pub(super) resource: DiscoveredResource,
    pub(super) encoding: Encoding,
    pub(super) client: Arc<Client>,
    pub(super) retention: Retention,
    pub(super) limits: ReadLimits,
    pub(super) recorder: Arc<ResourceRecorder>,
    /// Wraps what observes the writer; only tests change anything.
    pub(super) observer: fn(Arc<Hub>) -> Arc<dyn Observer>,
}

/// One cached resource, as the registry holds it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) slot_state: watch::Sender<SlotState>,
    pub(super) freshness: ResourceFreshness,
    pub(super) streams: Arc<StreamRecorder>,
    pub(super) recorder: Arc<ResourceRecorder>,
    pub(super) loss: Arc<HistoryLoss>,
    /// Permits for requests that are forwarded because there is no cache yet.
    forwards: Permits,
    /// When a request was last forwarded because there was no cache yet.
    forwarded_at: std::sync::Mutex<Option<Instant>>,
    /// Signals an attempt to end because memory is short; an attempt subscribes for as long as it runs.
    eviction: watch::Sender<()>,
    started_at: Instant,
    used_at: std::sync::Mutex<Instant>,
    task: AbortHandle,
}

impl Slot {
    pub(super) fn start(
        parts: SlotParts,
        tasks: &mut tokio::task::JoinSet<()>,
        streams: Arc<StreamRecorder>,
    ) -> Self {
        let slot_state = watch::Sender::new(SlotState::Waiting("starting"));
        let recorder = Arc::clone(&parts.recorder);
        let eviction = watch::Sender::new(());
        let loss = Arc::new(HistoryLoss::default());
        let keeper = CacheKeeper::new(
            parts,
            slot_state.clone(),
            eviction.clone(),
            Arc::clone(&loss),
        );
        let task = tasks.spawn(keeper.run());
        let now = Instant::now();
        Self {
            slot_state,
            freshness: ResourceFreshness::default(),
            streams,
            recorder,
            loss,
            forwards: Permits::new(FORWARDS_MAX),
            forwarded_at: std::sync::Mutex::default(),
            eviction,
            started_at: now,
            used_at: std::sync::Mutex::new(now),
            task,
        }
    }

    /// A permit for a request that is forwarded because there is no cache yet.
    pub(super) fn forward(&self, peer: Peer) -> Option<Permit> {
        let permit = self.forwards.try_acquire(peer)?;
        *self.forwarded_at() = Some(Instant::now());
        Some(permit)
    }

    /// A permit for a watch that starts before the cache's history, if its client may have the version from a forwarded list: the cache's
    /// own list may have been later.
    pub(super) fn forward_again(&self, peer: Peer) -> Option<Permit> {
        let forwarded_at = (*self.forwarded_at())?;
        let is_recent = forwarded_at.elapsed() < FORWARDED_LIST_AGE_MAX;
        is_recent.then(|| self.forwards.try_acquire(peer)).flatten()
    }

    fn forwarded_at(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.forwarded_at
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Records a use.
    pub(super) fn touch(&self) {
        *self
            .used_at
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    }

    /// When it was last used.
    pub(super) fn used_at(&self) -> Instant {
        *self
            .used_at
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether its task has a cache or tries to fill one, as opposed to waiting for the next attempt.
    pub(super) fn is_attempted(&self) -> bool {
        self.eviction.receiver_count() > 0
    }

    /// Ends the cache, or the attempt to fill one, because memory is short.
    pub(super) fn evict(&self) {
        self.eviction.send_replace(());
    }

    /// Whether no watch is open and the last use is longer ago than `timeout`.
    pub(super) fn is_idle(&self, timeout: Duration) -> bool {
        let used_at = self.used_at();
        let watched = match &*self.slot_state.borrow() {
            SlotState::Ready(served) => served.hub.is_watched(),
            SlotState::Waiting(_)
            | SlotState::GivenUp(_)
            | SlotState::OtherEncoding
            | SlotState::Gone
            | SlotState::Closed => false,
        };
        !watched && used_at.elapsed() > timeout
    }

    /// The state once the cache is no longer being filled, or after `wait`.
    pub(super) async fn settled(&self, wait: Duration) -> SlotState {
        let mut slot_state = self.slot_state.subscribe();
        let settled =
            slot_state.wait_for(|slot_state| !matches!(slot_state, SlotState::Waiting(_)));
        // Both outcomes are fine: the state is read afterwards.
        let _ = tokio::time::timeout(wait, settled).await;
        self.slot_state.borrow().clone()
    }

    /// Whether a pinned resource that was never filled keeps the gateway from being ready. Reasons that lie in its objects or in the load
    /// of the process do not: all replicas would be unready for the same reason, and its requests are forwarded.
    pub(super) fn must_be_filled(&self) -> CheckOutcome {
        match &*self.slot_state.borrow() {
            SlotState::Waiting(reason) => CheckOutcome::Failed((*reason).to_owned()),
            SlotState::Gone => CheckOutcome::Failed("gone upstream".to_owned()),
            SlotState::Closed => CheckOutcome::Failed("closed".to_owned()),
            SlotState::GivenUp(
                reason @ (GiveUpReason::Unauthorized
                | GiveUpReason::Forbidden
                | GiveUpReason::Refused
                | GiveUpReason::Unavailable),
            ) => CheckOutcome::Failed(reason.as_str().to_owned()),
            SlotState::GivenUp(_) | SlotState::Ready(_) | SlotState::OtherEncoding => {
                CheckOutcome::Passed(self.describe())
            }
        }
    }

    /// The state as text for people.
    pub(super) fn describe(&self) -> String {
        match &*self.slot_state.borrow() {
            SlotState::Waiting(reason) => format!("not served from memory yet: {reason}"),
            SlotState::Ready(_) => self.recorder.silence().map_or_else(String::new, |silence| {
                format!("upstream last sent data {} s ago", silence.as_secs())
            }),
            SlotState::GivenUp(reason) => format!("forwarded: {}", reason.as_str()),
            SlotState::OtherEncoding => "forwarded: not offered in this encoding".to_owned(),
            SlotState::Gone => "forwarded: gone upstream".to_owned(),
            SlotState::Closed => "closed".to_owned(),
        }
    }

    /// After how many seconds to retry, as kube-apiserver advises while its own cache fills: e^(0.06 × seconds), between 1 and 30
    /// (docs/PROTOCOL.md §6.9).
    pub(super) fn retry_after_seconds(&self) -> u32 {
        let age = self.started_at.elapsed();
        let seconds = (0.06 * age.as_secs_f64()).exp().clamp(1.0, 30.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to 1..=30 just above"
        )]
        let whole = seconds as u32;
        whole
    }

    /// Ends its watches and its task. If the cache becomes ready at this moment, it is not served.
    pub(super) fn close(&self) {
        if let SlotState::Ready(served) = self.slot_state.send_replace(SlotState::Closed) {
            served.hub.close();
        }
        self.task.abort();
    }
}

#[cfg(test)]
pub(super) mod tests;
