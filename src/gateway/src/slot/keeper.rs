//! The task that owns a cache: fills it, notices its end, and fills the next one (decisions 19, 21 and 22).

mod restoring;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::headroom::Headroom;
use super::history_loss::HistoryLoss;
use super::prior_state::{PriorStates, StateOrigin};
use super::sink::{CacheLen, SlotSink};
use super::state::{SlotState, SlotStateMachine};
use crate::admission::in_use;
use crate::cache::{CacheWriter, Observer, Retention};
use crate::checkpoints::Checkpoint;
use crate::consistency::{CheckTriggers, contradiction};
use crate::drift::{DriftPace, drift};
use crate::handover::CacheHandover;
use crate::live::LiveLimits;
use crate::local_fetch::LocalFetch;
use crate::metrics::{CacheState, Contradiction, GiveUpReason, Label};
use crate::older_states::OlderStates;
use crate::pressure::{CutFollower, HistoryCuts, MemoryRoom};
use crate::recorders::ResourceRecorder;
use crate::resource::groups::is_built_in;
use crate::resource::{Encoding, Gvr, Layout, ResourceKind};
use crate::task::catch_panic;
use crate::upstream::backoff::Backoff;
use crate::upstream::cache_sink::{CacheSink, FillRecorder};
use crate::upstream::client::Client;
use crate::upstream::discovery::DiscoveredResource;
use crate::upstream::driver::{Driver, DriverEnd, ReadSpec, offers_protobuf, probe};
use crate::upstream::reflector::{
    Failure, Failures, GiveUp, InitialVersion, ReflectorMachine, ReflectorOptions, StreamingLists,
};
use crate::view::{Hub, ServedResource};

/// Items per page where upstream does not stream lists; the value of client-go and kube-rs.
const PAGE_LEN: u32 = 500;
/// Upstream's history is replaced rarely, by a restored backup. If it happens twice within this time, no cache can be kept, and filling
/// one each time would cost upstream a full read.
const WENT_BACK_APART: Duration = Duration::from_secs(600);
/// A resource is gone if its probe was answered with 404 this many times.
const NOT_FOUND_MAX: u32 = 3;

/// Limits for reading a resource.
#[derive(Clone, Debug)]
pub(crate) struct ReadLimits {
    /// Longest watch frame in bytes.
    pub(crate) frame_len_max: usize,
    /// How long the events of a busy resource may be delayed to be delivered together.
    pub(crate) coalesce_delay_max: Duration,
    /// Those that may change.
    pub(crate) live: LiveLimits,
}

/// The inputs of a slot's task.
pub(crate) struct SlotParts {
    pub(crate) resource: DiscoveredResource,
    pub(crate) encoding: Encoding,
    pub(crate) client: Arc<Client>,
    /// Whether each response has to be proven to be kube-apiserver's own.
    pub(crate) must_prove_origin: bool,
    pub(crate) retention: Retention,
    /// Maximum bytes of deletions kept for clients that catch up; `None` if clients of the resource cannot.
    pub(crate) tombstones_len_max: Option<usize>,
    pub(crate) limits: ReadLimits,
    pub(crate) recorder: Arc<ResourceRecorder>,
    /// Set when the cache becomes ready for the first time.
    pub(crate) filled: Arc<OnceLock<()>>,
    /// Wraps what observes the writer; only tests change anything.
    pub(crate) observer: fn(Arc<Hub>) -> Arc<dyn Observer>,
    /// What the history may have while memory is short.
    pub(crate) cuts: HistoryCuts,
    /// What new caches may take while memory is short.
    pub(crate) room: MemoryRoom,
    /// Counts what readers hold of older states.
    pub(crate) older_states: OlderStates,
    /// Where the cache's state is kept for the next process; `None` if it is not kept.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// How the cache is taken over from another gateway; `None` if it is not.
    pub(crate) handover: Option<CacheHandover>,
    /// Changes each time that discovery was read.
    pub(crate) rediscovered: watch::Receiver<()>,
}

impl SlotParts {
    /// How the cache's requests are sent.
    fn local_fetch(&self) -> LocalFetch<Client> {
        let gvr = &self.resource.gvr;
        let unproven = self.must_prove_origin.then(|| gvr.clone());
        LocalFetch::new(Arc::clone(&self.client), unproven)
    }
}

/// What a slot's task shares with the slot.
#[derive(Clone, Debug)]
pub(crate) struct KeeperCells {
    pub(crate) slot_state: SlotStateMachine,
    /// Signals an attempt to end because memory is short; an attempt subscribes for as long as it runs.
    pub(super) eviction: watch::Sender<()>,
    pub(crate) loss: Arc<HistoryLoss>,
    pub(crate) cache_len: CacheLen,
    /// Notified when upstream seems to be behind a version that clients have.
    pub(super) doubt: Arc<Notify>,
    /// Set when the process ends: the checkpoint is written a last time.
    pub(super) ending: watch::Sender<bool>,
}

/// How one attempt to keep a cache ended.
enum FillOutcome {
    /// Upstream no longer has the resource.
    Gone,
    /// Upstream does not offer the resource in this encoding.
    OtherEncoding,
    /// Upstream's lists of the resource have another kind or layout now: clients must list again.
    Redefined,
    /// Upstream's history was replaced: clients must list again.
    WentBack,
    /// The same, found by a check of the cache.
    Contradiction(Contradiction),
    /// The cache cannot be kept, for this reason.
    GivenUp(GiveUpReason),
    /// Upstream's events are not in the order of their versions.
    Unordered,
    /// Upstream's objects contradict those of a state from before, which nobody was served from.
    ForeignState(Contradiction, StateOrigin),
}

/// Fills a cache, and a new one when it ends or its task panics, until upstream no longer has the resource. When a cache ends, the slot's
/// state changes first, so that no new request reaches it, and then its watches end.
pub(super) struct CacheKeeper {
    parts: SlotParts,
    cells: KeeperCells,
    short_backoff: Backoff,
    long_backoff: Backoff,
    unordered_backoff: Backoff,
    went_back_at: Option<Instant>,
    /// Contradictions between upstream and the caches so far.
    contradictions: u64,
    /// What the next cache may continue from.
    prior: PriorStates,
    headroom: Headroom,
}

impl CacheKeeper {
    pub(super) fn new(mut parts: SlotParts, cells: KeeperCells) -> Self {
        let prior = PriorStates::new(parts.checkpoint.take(), parts.handover.take());
        Self {
            parts,
            cells,
            short_backoff: Backoff::brisk(),
            long_backoff: Backoff::patient(),
            unordered_backoff: Backoff::reluctant(),
            went_back_at: None,
            contradictions: 0,
            prior,
            headroom: Headroom::default(),
        }
    }

    pub(super) async fn run(mut self) {
        self.parts.recorder.announce(CacheState::Filling);
        loop {
            let outcome = self.run_attempt().await;
            let is_served = matches!(&*self.cells.slot_state.borrow(), SlotState::Ready(_));
            self.prior.end_attempt(is_served, may_be_at_fault(&outcome));
            self.headroom.end_attempt(is_served);
            let Some(wait) = self.conclude(outcome) else {
                return;
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Runs one attempt to its end.
    async fn run_attempt(&self) -> FillOutcome {
        self.cells.cache_len.forget();
        let mut eviction = self.cells.eviction.subscribe();
        if self.is_memory_short() {
            return FillOutcome::GivenUp(GiveUpReason::Memory);
        }
        let attempt = catch_panic(self.attempt());
        let attempt = tokio::select! {
            attempt = Box::pin(attempt) => attempt,
            // Cancelling the attempt drops its cache.
            _ = eviction.changed() => return FillOutcome::GivenUp(GiveUpReason::Memory),
        };
        attempt.unwrap_or_else(|panic| {
            let resource = &self.parts.resource.gvr;
            error!(%resource, %panic, "the task that fills a cache panicked; retrying");
            FillOutcome::GivenUp(GiveUpReason::Panicked)
        })
    }

    /// Fills one cache and keeps it up to date until that fails.
    async fn attempt(&self) -> FillOutcome {
        match Box::pin(self.fill()).await {
            Ok(end) => outcome_of(end),
            Err(outcome) => outcome,
        }
    }

    /// Fills one cache and keeps it up to date until its driver ends.
    ///
    /// # Errors
    /// What ended the attempt instead.
    async fn fill(&self) -> Result<DriverEnd, FillOutcome> {
        let parts = &self.parts;
        let gvr = &parts.resource.gvr;
        let kind = learn_kind(parts).await?;
        let hub = Arc::new(Hub::new(&kind));
        let writer = self.writer(kind, &hub);
        parts.older_states.add(writer.cache().tracker());
        let served = ServedResource {
            cache: Arc::clone(writer.cache()),
            hub,
        };
        let recorder = Arc::clone(&parts.recorder).for_cache();
        let (connections, connected) = watch::channel(0);
        let contradicted = Arc::new(Notify::new());
        let lag = Arc::new(Mutex::new(false));
        let mut sink = SlotSink {
            cache_sink: CacheSink::new(
                writer,
                parts.limits.coalesce_delay_max,
                Arc::clone(&recorder) as Arc<dyn FillRecorder>,
            ),
            served: served.clone(),
            slot_state: self.cells.slot_state.clone(),
            recorder: Arc::clone(&parts.recorder),
            cache_len: self.cells.cache_len.clone(),
            connections,
            contradicted: Arc::clone(&contradicted),
            lag: Arc::clone(&lag),
            unproven: None,
            is_listed: false,
            is_watched: false,
            cuts: CutFollower::new(parts.cuts.clone()),
        };
        let cluster = self.cluster().await?;
        let start_from = self.restore(&mut sink, cluster.as_deref()).await?;
        let _follower = self.prior.checkpoint().map(|checkpoint| {
            checkpoint.follow(served.clone(), cluster, self.cells.ending.subscribe())
        });
        let options = ReflectorOptions {
            streaming: StreamingLists::Preferred,
            page_len: PAGE_LEN,
            start_from,
            initial: InitialVersion::Latest,
        };
        let driver = Driver::new(
            Arc::new(parts.local_fetch()),
            self.read_spec(gvr),
            ReflectorMachine::new(options)
                .with_backoff(Backoff::brisk())
                .giving_up(),
            sink,
            recorder,
        );
        // Cancelling the driver drops the cache; cancelling a check loses nothing.
        tokio::select! {
            end = driver.run() => Ok(end),
            reason = self.contradicted(&served, connected, &lag) => Err(FillOutcome::Contradiction(reason)),
            () = self.redefined(&served) => Err(FillOutcome::Redefined),
            () = contradicted.notified() => Err(FillOutcome::Contradiction(Contradiction::Older)),
        }
    }

    fn read_spec(&self, gvr: &Gvr) -> ReadSpec {
        let limits = &self.parts.limits;
        // A silent watch is compared before the cache counts as stale.
        let silence_max = limits.live.get().staleness_bound * 6 / 7;
        let spec = ReadSpec::all(gvr, limits.frame_len_max).in_encoding(self.parts.encoding);
        ReadSpec {
            silence_max: spec.silence_max.min(silence_max),
            ..spec
        }
    }

    fn writer(&self, kind: ResourceKind, hub: &Arc<Hub>) -> CacheWriter {
        let parts = &self.parts;
        let observer = (parts.observer)(Arc::clone(hub));
        let lost = self.cells.loss.version();
        let writer = CacheWriter::after_loss(kind, parts.retention, observer, lost);
        match parts.tombstones_len_max {
            Some(len_max) => writer.keeping_deletions(len_max),
            None => writer,
        }
    }

    /// Compares the cache with upstream until it is contradicted.
    async fn contradicted(
        &self,
        served: &ServedResource,
        connected: watch::Receiver<u64>,
        lag: &Mutex<bool>,
    ) -> Contradiction {
        let parts = &self.parts;
        let pace = DriftPace::new(parts.limits.live.clone(), self.contradictions);
        let triggers = CheckTriggers {
            connections: connected,
            doubt: Arc::clone(&self.cells.doubt),
        };
        tokio::select! {
            reason = contradiction(&*parts.client, served, triggers, lag, self.contradictions) => reason,
            reason = drift(&*parts.client, served, &parts.recorder, pace) => reason,
        }
    }

    /// Looks, each time that discovery was read, whether lists of the resource are still named and laid out as the cache's. Discovery does not
    /// name the kind of lists. kube-apiserver's own kinds never change.
    async fn redefined(&self, served: &ServedResource) {
        let (parts, kind) = (&self.parts, served.cache.kind());
        let mut rediscovered = parts.rediscovered.clone();
        loop {
            rediscovered.mark_unchanged();
            if is_built_in(&kind.gvr.group) || rediscovered.changed().await.is_err() {
                std::future::pending().await
            }
            // If upstream does not answer, the next discovery asks again.
            if let Ok(now) = probe(&*parts.client, &kind.gvr).await
                && (now.list_kind, now.layout) != (kind.list_kind.clone(), kind.layout)
            {
                return;
            }
        }
    }

    /// Whether there is no room for a cache. One that replaces another, which has just ended, needs none but below the bound.
    fn is_memory_short(&self) -> bool {
        let max = self.parts.limits.live.get().memory_max;
        let has_room = self
            .headroom
            .of_further_cache()
            .is_none_or(|len| self.parts.room.is_for(len));
        // Many caches may have begun since the reading that the room is of.
        max > 0
            && (!has_room
                || in_use().is_some_and(|len| len.saturating_add(self.headroom.len()) > max))
    }

    /// Sets the state after an attempt. Returns the pause before the next one; `None` if there is none.
    fn conclude(&mut self, outcome: FillOutcome) -> Option<Duration> {
        let resource = &self.parts.resource.gvr;
        match outcome {
            FillOutcome::Gone => {
                info!(%resource, "upstream no longer has the resource");
                self.forget_states();
                self.cells.slot_state.replace(SlotState::Gone, Hub::close);
                None
            }
            FillOutcome::OtherEncoding => {
                self.parts.recorder.announce(CacheState::NotOffered);
                self.cells
                    .slot_state
                    .replace(SlotState::OtherEncoding, Hub::close);
                // The response may have come from something else than the API server, so it is retried.
                Some(pause(&mut self.long_backoff))
            }
            FillOutcome::Redefined => {
                warn!(%resource, "upstream has redefined the resource: clients must list again");
                self.record_loss();
                self.forget_states();
                self.headroom.replace_cache();
                self.parts.recorder.announce(CacheState::Filling);
                let waiting = SlotState::Waiting("upstream has redefined the resource");
                self.cells.slot_state.replace(waiting, Hub::expire);
                Some(Duration::ZERO)
            }
            FillOutcome::WentBack => Some(self.start_over()),
            FillOutcome::Contradiction(reason) => {
                warn!(%resource, reason = reason.as_str(), "upstream's history differs from the cache's");
                self.parts.recorder.contradicted(reason);
                self.contradictions += 1;
                Some(self.start_over())
            }
            FillOutcome::GivenUp(reason) => Some(self.give_up(reason)),
            FillOutcome::Unordered => {
                let wait = pause(&mut self.unordered_backoff);
                Some(self.forward(GiveUpReason::WentBack, wait))
            }
            FillOutcome::ForeignState(reason, origin) => {
                let reason = reason.as_str();
                match origin {
                    StateOrigin::Checkpoint => {
                        warn!(%resource, reason, "the checkpoint is not used: upstream has another history");
                    }
                    StateOrigin::Peer => {
                        warn!(%resource, reason, "the other gateway's cache is not used: upstream has another history");
                    }
                }
                self.prior.forget(origin);
                Some(Duration::ZERO)
            }
        }
    }

    /// No later cache continues from what was there before.
    fn forget_states(&mut self) {
        self.prior.forget(StateOrigin::Checkpoint);
        self.prior.forget(StateOrigin::Peer);
    }

    /// Has clients list again, because upstream's history was replaced; returns the pause before the next attempt.
    fn start_over(&mut self) -> Duration {
        let resource = &self.parts.resource.gvr;
        warn!(%resource, "upstream's history was replaced: clients must list again");
        self.record_loss();
        self.forget_states();
        let before = self.went_back_at.replace(Instant::now());
        if before.is_some_and(|before| before.elapsed() < WENT_BACK_APART) {
            return self.give_up(GiveUpReason::WentBack);
        }
        self.headroom.replace_cache();
        self.parts.recorder.announce(CacheState::Filling);
        let waiting = SlotState::Waiting("upstream's versions went back");
        self.cells.slot_state.replace(waiting, Hub::expire);
        Duration::ZERO
    }

    /// Gives the cache up; returns the pause before the next attempt.
    fn give_up(&mut self, reason: GiveUpReason) -> Duration {
        if reason == GiveUpReason::Memory {
            // A cache larger than half of the limit is retried as well: it may have shrunk.
            let memory_max = self.parts.limits.live.get().memory_max;
            match self.cells.cache_len.needed() {
                0 => self.headroom.age(),
                needed => self.headroom.evict(needed.min(memory_max / 2)),
            }
        }
        let backoff = match reason {
            GiveUpReason::Unavailable => &mut self.short_backoff,
            GiveUpReason::Unauthorized
            | GiveUpReason::Forbidden
            | GiveUpReason::Undecodable
            | GiveUpReason::TooLong
            | GiveUpReason::Saturated
            | GiveUpReason::Refused
            | GiveUpReason::Memory
            | GiveUpReason::WentBack
            | GiveUpReason::Panicked => &mut self.long_backoff,
        };
        let wait = pause(backoff);
        self.forward(reason, wait)
    }

    /// Forwards requests until the next attempt after this pause, which is returned.
    fn forward(&self, reason: GiveUpReason, wait: Duration) -> Duration {
        self.parts.recorder.given_up(reason);
        let end = match reason == GiveUpReason::WentBack {
            true => Hub::expire,
            false => Hub::close,
        };
        self.cells
            .slot_state
            .replace(SlotState::GivenUp(reason), end);
        wait
    }

    /// Records the newest version that clients may know from the lost history.
    fn record_loss(&self) {
        if let SlotState::Ready(served) = &*self.cells.slot_state.borrow() {
            self.cells.loss.record(served.cache.newest_given());
        }
    }
}

fn pause(backoff: &mut Backoff) -> Duration {
    backoff.next(std::time::Instant::now(), crate::resource::random())
}

/// Whether an attempt may have ended so because of the state that it used, rather than because of upstream. A state that must not be used
/// for another reason is forgotten.
const fn may_be_at_fault(outcome: &FillOutcome) -> bool {
    match outcome {
        FillOutcome::GivenUp(reason) => match reason {
            GiveUpReason::Panicked
            | GiveUpReason::Memory
            | GiveUpReason::Undecodable
            | GiveUpReason::TooLong => true,
            GiveUpReason::Unavailable
            | GiveUpReason::Unauthorized
            | GiveUpReason::Forbidden
            | GiveUpReason::Saturated
            | GiveUpReason::Refused
            | GiveUpReason::WentBack => false,
        },
        FillOutcome::Gone
        | FillOutcome::Redefined
        | FillOutcome::OtherEncoding
        | FillOutcome::WentBack
        | FillOutcome::Unordered
        | FillOutcome::Contradiction(_)
        | FillOutcome::ForeignState(..) => false,
    }
}

const fn outcome_of(end: DriverEnd) -> FillOutcome {
    match end {
        DriverEnd::Gone => FillOutcome::Gone,
        DriverEnd::WentBack => FillOutcome::WentBack,
        DriverEnd::GivenUp(GiveUp::Unordered) => FillOutcome::Unordered,
        DriverEnd::GivenUp(reason) => FillOutcome::GivenUp(label_of(reason)),
    }
}

/// The metric label of the reflector's reason.
const fn label_of(reason: GiveUp) -> GiveUpReason {
    match reason {
        GiveUp::Unauthorized => GiveUpReason::Unauthorized,
        GiveUp::Forbidden => GiveUpReason::Forbidden,
        GiveUp::Undecodable => GiveUpReason::Undecodable,
        GiveUp::TooLong => GiveUpReason::TooLong,
        GiveUp::Saturated => GiveUpReason::Saturated,
        GiveUp::Unordered => GiveUpReason::WentBack,
        GiveUp::Refused => GiveUpReason::Refused,
        GiveUp::Unavailable => GiveUpReason::Unavailable,
    }
}

/// Probes upstream for the resource's list format until it answers, within the same failure limits as the driver.
async fn learn_kind(parts: &SlotParts) -> Result<ResourceKind, FillOutcome> {
    let mut backoff = Backoff::brisk();
    let mut failures = Failures::default();
    let mut not_found = 0;
    loop {
        let failure = match offer(parts).await {
            Ok(Some(kind)) => return Ok(kind),
            Ok(None) => return Err(FillOutcome::OtherEncoding),
            Err(failure) => failure,
        };
        if matches!(&failure, Failure::Status(status) if status.code == 404) {
            not_found += 1;
        }
        if not_found >= NOT_FOUND_MAX {
            return Err(FillOutcome::Gone);
        }
        debug!(resource = %parts.resource.gvr, error = %failure, "cannot read the resource yet");
        if let Some(reason) = failures.add(&failure, false) {
            return Err(FillOutcome::GivenUp(label_of(reason)));
        }
        tokio::time::sleep(pause_after(&failure, &mut backoff)).await;
    }
}

/// The wait before the next probe. Like the driver's, it is not shorter than upstream asks.
fn pause_after(failure: &Failure, backoff: &mut Backoff) -> Duration {
    let floor = Duration::from_secs(failure.retry_after_seconds().into());
    backoff.next_at_least(std::time::Instant::now(), crate::resource::random(), floor)
}

/// The resource's kind and list format; `None` if upstream does not offer it in the slot's encoding.
async fn offer(parts: &SlotParts) -> Result<Option<ResourceKind>, Failure> {
    // Clients get the warnings.
    let probe = probe(&parts.local_fetch(), &parts.resource.gvr).await?;
    let resource = &parts.resource;
    let kind = ResourceKind {
        gvr: resource.gvr.clone(),
        kind: resource.kind.clone(),
        list_kind: probe.list_kind,
        namespaced: resource.namespaced,
        layout: probe.layout,
        encoding: parts.encoding,
        warnings: probe.warnings,
    };
    let is_offered = match (parts.encoding, kind.layout) {
        (Encoding::Json, _) => true,
        (Encoding::Protobuf, Layout::Dynamic) => false,
        (Encoding::Protobuf, Layout::Typed) => {
            offers_protobuf(&*parts.client, &resource.gvr).await?
        }
    };
    Ok(is_offered.then_some(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::UpstreamStatus;

    #[test]
    fn a_resource_whose_events_are_out_of_order_has_no_cache_for_minutes() {
        let outcome = outcome_of(DriverEnd::GivenUp(GiveUp::Unordered));
        assert!(matches!(outcome, FillOutcome::Unordered));
        assert!(pause(&mut Backoff::reluctant()) >= Duration::from_secs(150));
    }

    #[test]
    fn a_probe_is_not_sent_again_before_upstream_allows_it() {
        let refused = UpstreamStatus::of_code(429).over_http(429, Some(7));
        let wait = |failure| pause_after(&failure, &mut Backoff::brisk());
        assert!(wait(Failure::Status(refused)) >= Duration::from_secs(7));
        assert!(wait(Failure::Saturated) < Duration::from_secs(7));
    }
}
