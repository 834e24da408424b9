//! One cached resource: its cache, and the task that keeps it filled as long as clients use it.

mod headroom;
mod history_loss;
mod keeper;
mod prior_state;
mod sink;
mod state;
mod unreached;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::checkpoints::Checkpoint;
use super::freshness::ResourceFreshness;
use super::live::LiveLimits;
use super::recorders::{ResourceRecorder, StreamRecorder};
use crate::admin::CheckOutcome;
use crate::cache::ChunksMemory;
use crate::fairness::{Peer, Permit, Permits};
use crate::metrics::{GiveUpReason, Label};
use crate::numbers::counted;
use crate::resource::{Gvr, ResourceVersion};
use crate::serve::resources::{Latest, VersionReach};
use crate::upstream::cache_sink::HistoryMemory;
use crate::upstream::discovery::DiscoveredResource;
use crate::upstream::driver::Fetch;
use crate::view::{EndSchedule, Hub, ServedResource};
use keeper::{CacheKeeper, KeeperCells};
pub(super) use keeper::{ReadLimits, SlotParts};
use sink::CacheLen;
pub(super) use state::SlotState;
use state::SlotStateMachine;
use unreached::UnreachedVersions;

/// Requests of one resource that may be forwarded at a time while it has no cache because upstream is slow or fails. More would be the
/// load that the cache is there to keep away from upstream. Clients share the permits.
const FORWARDS_MAX: usize = 32;

/// After a request has waited this long for a cache, others are forwarded without waiting.
const SLOW_AFTER: Duration = Duration::from_secs(9);

/// As many watches as are forwarded at a time in any case.
const RULED_MAX: usize = 5_760;

/// How long after a forwarded list its client may start a watch from the list's version: it must read a large list first.
pub(super) const FORWARDED_LIST_AGE_MAX: Duration = Duration::from_secs(60);

/// Bytes of memory that a slot's cache takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CacheMemory {
    pub(super) chunks: ChunksMemory,
    pub(super) history: HistoryMemory,
    /// Events laid out for watches.
    pub(super) frames: usize,
    pub(super) views: usize,
    /// Buffers of its checkpoint.
    pub(super) checkpoint: usize,
}

/// One cached resource, as the registry holds it.
#[derive(Debug)]
pub(super) struct Slot {
    /// What its task shares with it.
    pub(super) cells: KeeperCells,
    pub(super) freshness: ResourceFreshness,
    pub(super) streams: Arc<StreamRecorder>,
    pub(super) recorder: Arc<ResourceRecorder>,
    unreached: UnreachedVersions,
    /// Permits for requests that are forwarded because there is no cache yet.
    forwards: Permits,
    /// Permits for watches that start before the history because serving rules have forwarded their clients.
    ruled: Permits,
    /// Whether a request has waited in vain for the cache that is being filled.
    is_slow: Mutex<bool>,
    /// When a request was last forwarded because there was no cache yet.
    forwarded_at: Mutex<Option<Instant>>,
    started_at: Instant,
    used_at: Mutex<Instant>,
    checkpoint: Option<Checkpoint>,
    limits: LiveLimits,
    /// The resource as it was discovered when the slot started.
    pub(super) definition: DiscoveredResource,
    task: AbortHandle,
}

impl Slot {
    pub(super) fn start(
        parts: SlotParts,
        tasks: &mut tokio::task::JoinSet<()>,
        streams: Arc<StreamRecorder>,
    ) -> Self {
        let cells = KeeperCells {
            slot_state: SlotStateMachine::new(Arc::clone(&parts.filled)),
            eviction: watch::Sender::new(()),
            loss: Arc::default(),
            cache_len: CacheLen::default(),
            doubt: Arc::new(Notify::new()),
            ending: watch::Sender::new(false),
        };
        let checkpoint = parts.checkpoint.clone();
        let limits = parts.limits.live.clone();
        let recorder = Arc::clone(&parts.recorder);
        let definition = parts.resource.clone();
        let task = tasks.spawn(CacheKeeper::new(parts, cells.clone()).run());
        let now = Instant::now();
        Self {
            freshness: ResourceFreshness::new(Arc::clone(&cells.doubt)),
            cells,
            unreached: UnreachedVersions::default(),
            streams,
            recorder,
            forwards: Permits::new(FORWARDS_MAX),
            ruled: Permits::new(RULED_MAX),
            is_slow: Mutex::default(),
            forwarded_at: Mutex::default(),
            started_at: now,
            used_at: Mutex::new(now),
            checkpoint,
            limits,
            definition,
            task,
        }
    }

    /// As [`Self::latest`], without a comparison of objects.
    pub(super) async fn latest_uncompared<F: Fetch>(
        &self,
        fetch: &Arc<F>,
        served: &ServedResource,
    ) -> Latest {
        self.freshness.latest_uncompared(fetch, served).await
    }

    /// The proof for a consistent read. It proves as well that the cache is not old.
    pub(super) async fn latest<F: Fetch>(&self, fetch: &Arc<F>, served: &ServedResource) -> Latest {
        let latest = self.freshness.latest(fetch, served).await;
        if !matches!(latest, Latest::Unknown) {
            self.recorder.age.prove();
        }
        latest
    }

    /// Whether a request has waited in vain for the cache that is being filled.
    pub(super) fn is_slow(&self) -> bool {
        *self.is_slow.lock()
    }

    /// A request has waited for so long, and the cache is not ready.
    pub(super) fn note_wait(&self, wait: Duration) {
        if wait >= SLOW_AFTER {
            *self.is_slow.lock() = true;
        }
    }

    /// Whether upstream has reached this version. Costs upstream one small request, which concurrent callers share.
    pub(super) async fn version_reach<F: Fetch>(
        &self,
        fetch: &Arc<F>,
        gvr: &Gvr,
        version: ResourceVersion,
    ) -> VersionReach {
        // Without a cache clients get what upstream gives them, whatever its versions mean, unless it has just lost a history.
        if !self.may_have_cache() && !self.cells.loss.is_recent() {
            return VersionReach::Reached;
        }
        let given = self.served().map(|served| served.cache.newest_given());
        let newest = self.freshness.upstream_version(fetch, gvr).await;
        if newest.is_some_and(|newest| given.is_some_and(|given| newest < given)) {
            self.freshness.doubt();
        }
        newest.map_or(VersionReach::Unknown, |newest| {
            self.unreached
                .reach(newest, version, self.cells.loss.is_recent())
        })
    }

    /// Whether it has a cache or fills one.
    fn may_have_cache(&self) -> bool {
        match &*self.cells.slot_state.borrow() {
            SlotState::Waiting(_) | SlotState::Ready(_) => true,
            SlotState::GivenUp(_)
            | SlotState::OtherEncoding
            | SlotState::Gone
            | SlotState::Closed => false,
        }
    }

    /// A permit for a request that is forwarded because there is no cache yet.
    pub(super) fn forward(&self, peer: Peer) -> Option<Permit> {
        let permit = self.forwards.try_acquire(peer)?;
        *self.forwarded_at() = Some(Instant::now());
        Some(permit)
    }

    /// A permit for a watch that starts before the cache's history, if its client may have the version from a forwarded list: the cache's
    /// own list may have been later. `is_ruled` says that serving rules have forwarded such lists, too.
    pub(super) fn forward_again(&self, peer: Peer, is_ruled: bool) -> Option<Permit> {
        let forwarded_at = *self.forwarded_at();
        let is_recent = forwarded_at.is_some_and(|at| at.elapsed() < FORWARDED_LIST_AGE_MAX);
        let recent = is_recent.then(|| self.forwards.try_acquire(peer)).flatten();
        recent.or_else(|| is_ruled.then(|| self.ruled.try_acquire(peer)).flatten())
    }

    fn forwarded_at(&self) -> parking_lot::MutexGuard<'_, Option<Instant>> {
        self.forwarded_at.lock()
    }

    pub(super) fn touch(&self) {
        *self.used_at.lock() = Instant::now();
    }

    /// When it was last used.
    pub(super) fn used_at(&self) -> Instant {
        *self.used_at.lock()
    }

    /// Whether its task has a cache or tries to fill one, as opposed to waiting for the next attempt.
    pub(super) fn is_attempted(&self) -> bool {
        self.cells.eviction.receiver_count() > 0
    }

    /// The cache that requests are served from; `None` if there is none.
    pub(super) fn served(&self) -> Option<ServedResource> {
        match &*self.cells.slot_state.borrow() {
            SlotState::Ready(served) => Some(served.clone()),
            SlotState::Waiting(_)
            | SlotState::GivenUp(_)
            | SlotState::OtherEncoding
            | SlotState::Gone
            | SlotState::Closed => None,
        }
    }

    /// What the cache takes, or what was collected to fill one.
    pub(super) fn memory(&self) -> CacheMemory {
        let mut memory = CacheMemory::default();
        if self.is_attempted() {
            memory.history = self.cells.cache_len.history();
            memory.checkpoint = self.checkpoint.as_ref().map_or(0, Checkpoint::buffers_len);
        }
        if let Some(ServedResource { cache, hub }) = self.served() {
            memory.chunks = cache.objects_memory();
            memory.frames = hub.frames_len();
            memory.views = hub.view_count();
        }
        memory
    }

    /// Drops what can be made again.
    pub(super) fn drop_derived(&self) {
        if let Some(served) = self.served() {
            served.cache.drop_derived();
        }
    }

    /// Keeps fewer events laid out for watches while memory `is_short`.
    pub(super) fn bound_frames(&self, is_short: bool) {
        if let Some(served) = self.served() {
            served.hub.bound_frames(is_short, Instant::now().into_std());
        }
    }

    /// Ends the cache, or the attempt to fill one, because memory is short.
    pub(super) fn evict(&self) {
        self.cells.eviction.send_replace(());
    }

    /// Whether no watch is open and the last use is longer ago than `timeout`. Then none can be opened any more.
    pub(super) fn retire_if_idle(&self, timeout: Duration) -> bool {
        self.used_at().elapsed() > timeout
            && self
                .served()
                .is_none_or(|served| served.hub.close_unwatched())
    }

    /// The state once the cache is no longer being filled, or after `wait`.
    pub(super) async fn settled(&self, wait: Duration) -> SlotState {
        let mut slot_state = self.cells.slot_state.subscribe();
        let is_settled =
            slot_state.wait_for(|slot_state| !matches!(slot_state, SlotState::Waiting(_)));
        // Both outcomes are fine: the state is read afterwards.
        let _ = tokio::time::timeout(wait, is_settled).await;
        let state = self.cells.slot_state.borrow().clone();
        if matches!(state, SlotState::Ready(_)) {
            *self.is_slow.lock() = false;
        }
        state
    }

    /// Whether a pinned resource that was never filled keeps the gateway from being ready. Reasons that lie in its objects or in the load
    /// of the process do not: all replicas would be unready for the same reason, and its requests are forwarded.
    pub(super) fn must_be_filled(&self) -> CheckOutcome {
        match &*self.cells.slot_state.borrow() {
            SlotState::Waiting(reason) => CheckOutcome::Failed(self.waiting_for(reason)),
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

    /// How old the cache may be, if that is more than the bound.
    pub(super) fn staleness(&self) -> Option<Duration> {
        let age = self.recorder.age.now();
        (age > self.limits.get().staleness_bound).then_some(age)
    }

    /// Shows in the metrics how old the cache may be; zero without a cache.
    pub(super) fn report_age(&self) {
        let age = match &*self.cells.slot_state.borrow() {
            SlotState::Ready(_) => self.recorder.age.now(),
            SlotState::Waiting(_)
            | SlotState::GivenUp(_)
            | SlotState::OtherEncoding
            | SlotState::Gone
            | SlotState::Closed => Duration::ZERO,
        };
        self.recorder.aged(age);
    }

    /// Why the cache is not filled yet, and how far it has come.
    fn waiting_for(&self, reason: &str) -> String {
        match self.recorder.listing.objects() {
            Some(objects) => {
                let objects = counted(objects, ("object", "objects"));
                format!("{reason}, {objects} listed so far")
            }
            None => reason.to_owned(),
        }
    }

    /// The state as text for people.
    pub(super) fn describe(&self) -> String {
        match &*self.cells.slot_state.borrow() {
            SlotState::Waiting(reason) => {
                format!("not served from memory yet: {}", self.waiting_for(reason))
            }
            SlotState::Ready(_) if let Some(age) = self.staleness() => {
                format!("stale: no proof from upstream for {} s", age.as_secs())
            }
            SlotState::Ready(_) => self.recorder.silence().map_or_else(String::new, |silence| {
                format!("upstream last sent data {} s ago", silence.as_secs())
            }),
            SlotState::GivenUp(reason) => format!("forwarded: {}", reason.as_str()),
            SlotState::OtherEncoding => "forwarded: not offered in this encoding".to_owned(),
            SlotState::Gone => "forwarded: gone upstream".to_owned(),
            SlotState::Closed => "closed".to_owned(),
        }
    }

    /// Whether the resource has no cache, and nobody needs to do anything about that.
    pub(super) fn is_harmless(&self) -> bool {
        matches!(
            &*self.cells.slot_state.borrow(),
            SlotState::Waiting(_)
                | SlotState::OtherEncoding
                | SlotState::GivenUp(GiveUpReason::Forbidden)
        )
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

    /// Removes its checkpoint: nobody uses the resource, or it must not be cached any more.
    pub(super) fn remove_checkpoint(&self) {
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.remove();
        }
    }

    /// Ends each watch of the cache at a time of the schedule, also of a cache that becomes ready later.
    pub(super) fn schedule_end(&self, schedule: &Arc<EndSchedule>) {
        self.cells.slot_state.schedule_end(schedule);
    }

    /// [`Slot::close`], because the process ends: its checkpoint is written a last time, so that the next process continues from it.
    pub(super) fn end(&self) {
        self.cells.ending.send_replace(true);
        self.close(Hub::close);
    }

    /// Ends its watches in this way, and its task. If the cache becomes ready at this moment, it is not served.
    pub(super) fn close(&self, end: fn(&Hub)) {
        self.cells.slot_state.close(end);
        self.task.abort();
    }
}

#[cfg(test)]
pub(super) mod tests;
