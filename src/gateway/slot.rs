//! One cached resource: the task that keeps its cache filled, for as long as somebody wants it.

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

/// Requests of one resource that are forwarded at once while it has no cache because upstream is slow or fails: what comes
/// beyond would be the herd that the cache is there to keep away. Clients have shares of it.
const FORWARDS_MAX: usize = 32;

/// So long after a list was forwarded its client may come with its version to watch: it has to read a large list first.
const FORWARDED_LIST_AGE_MAX: Duration = Duration::from_secs(60);

/// So long after upstream's history was lost clients may come with versions of it. Their watches have ended, and client-go waits 30 s at
/// most before it comes again. Longer is too long: where no new cache can be filled, versions of the new history may stay below those
/// of the lost one for days, and whoever begins at one lists again meanwhile.
const LOSS_AGE_MAX: Duration = Duration::from_secs(90);

/// Up to which version clients may know a history that upstream no longer has.
#[derive(Debug, Default)]
pub(super) struct HistoryLoss(std::sync::Mutex<Option<(ResourceVersion, Instant)>>);

impl HistoryLoss {
    /// Another history is lost, of which clients may know this version.
    fn note(&self, newest: ResourceVersion) {
        let version = self.version().max(newest);
        *self.state() = Some((version, Instant::now()));
    }

    /// The newest version that clients may know; zero if none was lost.
    fn version(&self) -> ResourceVersion {
        self.state()
            .map_or_else(Default::default, |(version, _)| version)
    }

    /// Whether a client may have this version from a history that was lost lately.
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

/// How far a cache is.
#[derive(Clone, Debug)]
pub(super) enum SlotState {
    /// Not ready, for this reason.
    Waiting(&'static str),
    /// It can be served from.
    Ready(ServedResource),
    /// There is no cache, for this reason: requests are forwarded. It is tried again.
    GivenUp(GiveUpReason),
    /// Upstream has the resource, but not in this encoding.
    OtherEncoding,
    /// Upstream no longer has the resource.
    Gone,
    /// Its slot was closed.
    Closed,
}

/// Bounds of what a slot reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadLimits {
    /// Longest watch frame, bytes.
    pub(super) frame_len_max: usize,
    /// How long a busy resource's events may be held back to be delivered together.
    pub(super) coalesce_delay_max: Duration,
    /// Resident bytes of the process beyond which no cache is begun and some are given up; 0 for no bound.
    pub(super) memory_max: usize,
}

/// What a slot's task is given.
pub(super) struct SlotParts {
    pub(super) resource: DiscoveredResource,
    pub(super) encoding: Encoding,
    pub(super) client: Arc<Client>,
    pub(super) retention: Retention,
    pub(super) limits: ReadLimits,
    pub(super) tally: Arc<ResourceRecorder>,
    /// Puts something between a writer and its views; a test does.
    pub(super) observer: fn(Arc<Hub>) -> Arc<dyn Observer>,
}

/// The registry's hold on one cached resource.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) filling: watch::Sender<SlotState>,
    pub(super) freshness: ResourceFreshness,
    pub(super) streams: Arc<StreamRecorder>,
    pub(super) tally: Arc<ResourceRecorder>,
    pub(super) loss: Arc<HistoryLoss>,
    /// Places for requests that are forwarded because there is no cache yet.
    forwards: Permits,
    /// When a request was forwarded last because there was no cache yet.
    forwarded_at: std::sync::Mutex<Option<Instant>>,
    /// Heard by an attempt at a cache for as long as it lasts.
    relief: watch::Sender<()>,
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
        let filling = watch::Sender::new(SlotState::Waiting("starting"));
        let tally = Arc::clone(&parts.tally);
        let relief = watch::Sender::new(());
        let loss = Arc::new(HistoryLoss::default());
        let keeper = CacheKeeper::new(parts, filling.clone(), relief.clone(), Arc::clone(&loss));
        let task = tasks.spawn(keeper.run());
        let now = Instant::now();
        Self {
            filling,
            freshness: ResourceFreshness::default(),
            streams,
            tally,
            loss,
            forwards: Permits::new(FORWARDS_MAX),
            forwarded_at: std::sync::Mutex::default(),
            relief,
            started_at: now,
            used_at: std::sync::Mutex::new(now),
            task,
        }
    }

    /// A place for a request that is forwarded because there is no cache yet.
    pub(super) fn forward(&self, peer: Peer) -> Option<Permit> {
        let permit = self.forwards.try_acquire(peer)?;
        *self.forwarded_at() = Some(Instant::now());
        Some(permit)
    }

    /// A place for a watch that begins before the cache's history, where its client may have its version from a list that was
    /// forwarded: the cache's own list may have been later.
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

    /// Somebody asked for it.
    pub(super) fn touch(&self) {
        *self
            .used_at
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    }

    /// When somebody asked for it last.
    pub(super) fn used_at(&self) -> Instant {
        *self
            .used_at
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether its task has a cache, or tries to fill one, as opposed to waiting before it tries again.
    pub(super) fn is_attempted(&self) -> bool {
        self.relief.receiver_count() > 0
    }

    /// Gives up its cache, or the attempt at one, because memory is short.
    pub(super) fn relieve(&self) {
        self.relief.send_replace(());
    }

    /// Nobody watches, and nobody has asked for `timeout`.
    pub(super) fn is_idle(&self, timeout: Duration) -> bool {
        let used_at = self.used_at();
        let watched = match &*self.filling.borrow() {
            SlotState::Ready(served) => served.hub.is_watched(),
            SlotState::Waiting(_)
            | SlotState::GivenUp(_)
            | SlotState::OtherEncoding
            | SlotState::Gone
            | SlotState::Closed => false,
        };
        !watched && used_at.elapsed() > timeout
    }

    /// Its state once it is no longer being filled, or after `wait`.
    pub(super) async fn settled(&self, wait: Duration) -> SlotState {
        let mut filling = self.filling.subscribe();
        let settled = filling.wait_for(|filling| !matches!(filling, SlotState::Waiting(_)));
        // Whichever is first: the state is what it is then.
        let _ = tokio::time::timeout(wait, settled).await;
        self.filling.borrow().clone()
    }

    /// Whether a pinned resource that was never filled holds up readiness. What its objects are like, or how busy the process
    /// is, does not: all replicas would be unready for it, and its requests are forwarded.
    pub(super) fn must_be_filled(&self) -> CheckOutcome {
        match &*self.filling.borrow() {
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

    /// Its state, for people.
    pub(super) fn describe(&self) -> String {
        match &*self.filling.borrow() {
            SlotState::Waiting(reason) => format!("not served from memory yet: {reason}"),
            SlotState::Ready(_) => self.tally.silence().map_or_else(String::new, |silence| {
                format!("upstream was last heard {} s ago", silence.as_secs())
            }),
            SlotState::GivenUp(reason) => format!("forwarded: {}", reason.as_str()),
            SlotState::OtherEncoding => "forwarded: not offered in this encoding".to_owned(),
            SlotState::Gone => "forwarded: gone upstream".to_owned(),
            SlotState::Closed => "closed".to_owned(),
        }
    }

    /// When to come again, as kube-apiserver advises while its own cache fills: e^(0.06 × seconds), between 1 and 30
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

    /// Ends its watches and its task. A cache that becomes ready at this moment is served to nobody.
    pub(super) fn close(&self) {
        if let SlotState::Ready(served) = self.filling.send_replace(SlotState::Closed) {
            served.hub.close();
        }
        self.task.abort();
    }
}

#[cfg(test)]
pub(super) mod tests;
