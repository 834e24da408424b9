//! One cached resource: the task that keeps its cache filled, for as long as somebody wants it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::consistency::contradiction;
use super::freshness::Freshness;
use super::tally::{ResourceTally, StreamTally};
use super::task::caught;
use crate::admin::CheckOutcome;
use crate::cache::{Observer, Retention, Writer};
use crate::downstream::admission::resident;
use crate::metrics::{CacheState, GiveUpReason, Label};
use crate::resource::{Encoding, Layout, ResourceKind};
use crate::upstream::backoff::Backoff;
use crate::upstream::cache_sink::{CacheSink, FillTally};
use crate::upstream::client::Client;
use crate::upstream::discovery::DiscoveredResource;
use crate::upstream::driver::{Driver, DriverEnd, ProbeError, Reading, offers_protobuf, probe};
use crate::upstream::reflector::{
    Failures, GiveUp, InitialVersion, Reflector, ReflectorOptions, Streaming,
};
use crate::view::{Hub, Served};

/// Items of a page where upstream does not stream lists, as client-go and kube-rs ask for.
const PAGE_LEN: u32 = 500;
/// Requests of one resource that are forwarded at once while it has no cache because upstream is slow or fails: what comes
/// beyond would be the herd that the cache is there to keep away.
const FORWARDS_MAX: usize = 32;
/// A resource whose probe is refused with 404 so often is gone.
const NOT_FOUND_MAX: u32 = 3;

/// How far a cache is.
#[derive(Clone, Debug)]
pub(super) enum Filling {
    /// Not ready, for this reason.
    Waiting(&'static str),
    /// It can be served from.
    Ready(Served),
    /// There is no cache, for this reason: requests are forwarded. It is tried again.
    GivenUp(GiveUpReason),
    /// Upstream has the resource, but not in this encoding.
    OtherEncoding,
    /// Upstream no longer has the resource.
    Gone,
}

/// Bounds of what a slot reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadLimits {
    /// Longest watch frame, bytes.
    pub(super) frame_len_max: usize,
    /// How long a busy resource's events may be held back to be delivered together.
    pub(super) coalesce_delay_max: Duration,
    /// Resident bytes of the process beyond which no cache is begun; 0 for no bound.
    pub(super) memory_max: usize,
}

/// What a slot's task is given.
pub(super) struct SlotParts {
    pub(super) resource: DiscoveredResource,
    pub(super) encoding: Encoding,
    pub(super) client: Arc<Client>,
    pub(super) retention: Retention,
    pub(super) limits: ReadLimits,
    pub(super) tally: Arc<ResourceTally>,
    /// Puts something between a writer and its views; a test does.
    pub(super) observer: fn(Arc<Hub>) -> Arc<dyn Observer>,
}

/// The registry's hold on one cached resource.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) filling: watch::Receiver<Filling>,
    pub(super) freshness: Freshness,
    pub(super) streams: Arc<StreamTally>,
    pub(super) tally: Arc<ResourceTally>,
    /// Places for requests that are forwarded because there is no cache yet.
    pub(super) forwards: Arc<Semaphore>,
    started_at: Instant,
    used_at: std::sync::Mutex<Instant>,
    task: AbortHandle,
}

impl Slot {
    pub(super) fn start(
        parts: SlotParts,
        tasks: &mut tokio::task::JoinSet<()>,
        streams: Arc<StreamTally>,
    ) -> Self {
        let (sender, filling) = watch::channel(Filling::Waiting("starting"));
        let tally = Arc::clone(&parts.tally);
        let task = tasks.spawn(keep_filled(parts, sender));
        let now = Instant::now();
        Self {
            filling,
            freshness: Freshness::default(),
            streams,
            tally,
            forwards: Arc::new(Semaphore::new(FORWARDS_MAX)),
            started_at: now,
            used_at: std::sync::Mutex::new(now),
            task,
        }
    }

    /// Somebody asked for it.
    pub(super) fn touch(&self) {
        *self
            .used_at
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    }

    /// Nobody watches, and nobody has asked for `timeout`.
    pub(super) fn is_idle(&self, timeout: Duration) -> bool {
        let used_at = *self
            .used_at
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let watched = match &*self.filling.borrow() {
            Filling::Ready(served) => served.hub.is_watched(),
            Filling::Waiting(_) | Filling::GivenUp(_) | Filling::OtherEncoding | Filling::Gone => {
                false
            }
        };
        !watched && used_at.elapsed() > timeout
    }

    /// Its state once it is no longer being filled, or after `wait`; `None` if it was closed while it was filled.
    pub(super) async fn settled(&self, wait: Duration) -> Option<Filling> {
        let mut filling = self.filling.clone();
        let settled = filling.wait_for(|filling| !matches!(filling, Filling::Waiting(_)));
        tokio::time::timeout(wait, settled).await.map_or_else(
            |_| Some(self.filling.borrow().clone()),
            |settled| settled.ok().map(|filling| filling.clone()),
        )
    }

    /// Whether a pinned resource that was never filled holds up readiness. What its objects are like, or how busy the process
    /// is, does not: all replicas would be unready for it, and its requests are forwarded.
    pub(super) fn must_be_filled(&self) -> CheckOutcome {
        match &*self.filling.borrow() {
            Filling::Waiting(reason) => CheckOutcome::Failed((*reason).to_owned()),
            Filling::Gone => CheckOutcome::Failed("gone upstream".to_owned()),
            Filling::GivenUp(
                reason @ (GiveUpReason::Unauthorized
                | GiveUpReason::Forbidden
                | GiveUpReason::Refused
                | GiveUpReason::Unavailable),
            ) => CheckOutcome::Failed(reason.as_str().to_owned()),
            Filling::GivenUp(_) | Filling::Ready(_) | Filling::OtherEncoding => {
                CheckOutcome::Passed(self.describe())
            }
        }
    }

    /// Its state, for people.
    pub(super) fn describe(&self) -> String {
        match &*self.filling.borrow() {
            Filling::Waiting(reason) => format!("not served from memory yet: {reason}"),
            Filling::Ready(_) => self.tally.silence().map_or_else(String::new, |silence| {
                format!("upstream was last heard {} s ago", silence.as_secs())
            }),
            Filling::GivenUp(reason) => format!("forwarded: {}", reason.as_str()),
            Filling::OtherEncoding => "forwarded: not offered in this encoding".to_owned(),
            Filling::Gone => "forwarded: gone upstream".to_owned(),
        }
    }

    /// Seconds since it was started, for Retry-After (protocol.md §6.9).
    pub(super) fn age(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Ends its watches and its task.
    pub(super) fn close(&self) {
        if let Filling::Ready(served) = &*self.filling.borrow() {
            served.hub.close();
        }
        self.task.abort();
    }
}

/// How one attempt at a cache ended.
enum Outcome {
    /// Upstream no longer has the resource.
    Gone,
    /// Not in this encoding.
    OtherEncoding,
    /// Upstream's versions went back: clients must list again.
    WentBack,
    /// It cannot be kept.
    GivenUp(GiveUpReason),
}

/// The owner of a cache: fills one, and a new one when it ends, by return or by panic, until upstream no longer has the
/// resource. Clients are told in order: first nobody is sent to the old cache any more, then its watches end.
async fn keep_filled(parts: SlotParts, filling: watch::Sender<Filling>) {
    let gvr = parts.resource.gvr.clone();
    let (mut brisk, mut patient) = (Backoff::brisk(), Backoff::patient());
    parts.tally.announce(CacheState::Filling);
    loop {
        let outcome = Box::pin(caught(attempt(&parts, &filling))).await;
        let outcome = outcome.unwrap_or_else(|panic| {
            error!(resource = %gvr, %panic, "the task that fills a cache panicked");
            Outcome::GivenUp(GiveUpReason::Panicked)
        });
        let reason = match outcome {
            Outcome::Gone => {
                info!(resource = %gvr, "upstream no longer has the resource");
                return settle(&filling, Filling::Gone);
            }
            Outcome::OtherEncoding => return settle(&filling, Filling::OtherEncoding),
            Outcome::WentBack => {
                warn!(resource = %gvr, "upstream's versions went back: clients must list again");
                parts.tally.announce(CacheState::Filling);
                let waiting = Filling::Waiting("upstream's versions went back");
                if let Filling::Ready(served) = filling.send_replace(waiting) {
                    served.hub.expire();
                }
                continue;
            }
            Outcome::GivenUp(reason) => reason,
        };
        parts.tally.given_up(reason);
        settle(&filling, Filling::GivenUp(reason));
        let backoff = match reason {
            GiveUpReason::Unavailable => &mut brisk,
            GiveUpReason::Unauthorized
            | GiveUpReason::Forbidden
            | GiveUpReason::Undecodable
            | GiveUpReason::TooLong
            | GiveUpReason::Saturated
            | GiveUpReason::Refused
            | GiveUpReason::Memory
            | GiveUpReason::Panicked => &mut patient,
        };
        let wait = backoff.next(std::time::Instant::now(), crate::resource::random());
        warn!(resource = %gvr, reason = reason.as_str(), ?wait, "no cache of it: its requests are forwarded");
        tokio::time::sleep(wait).await;
    }
}

/// Replaces the state, and ends the watches of a cache that was served from until now.
fn settle(filling: &watch::Sender<Filling>, next: Filling) {
    if let Filling::Ready(served) = filling.send_replace(next) {
        served.hub.close();
    }
}

/// Fills one cache and keeps it up to date for as long as that goes well.
async fn attempt(parts: &SlotParts, filling: &watch::Sender<Filling>) -> Outcome {
    if parts.limits.memory_max > 0 && resident().is_some_and(|len| len > parts.limits.memory_max) {
        return Outcome::GivenUp(GiveUpReason::Memory);
    }
    let gvr = &parts.resource.gvr;
    let kind = match learn_kind(parts).await {
        Ok(kind) => kind,
        Err(outcome) => return outcome,
    };
    let hub = Arc::new(Hub::new(&kind));
    let writer = Writer::new(kind, parts.retention, (parts.observer)(Arc::clone(&hub)));
    let served = Served {
        cache: Arc::clone(writer.cache()),
        hub,
    };
    let tally = Arc::clone(&parts.tally).for_cache(served.clone(), filling.clone());
    let options = ReflectorOptions {
        streaming: Streaming::Preferred,
        page_len: PAGE_LEN,
        start_from: None,
        initial: InitialVersion::Latest,
    };
    let delay = parts.limits.coalesce_delay_max;
    let sink = CacheSink::new(writer, delay, Arc::clone(&tally) as Arc<dyn FillTally>);
    let connections = tally.connections();
    let driver = Driver::new(
        Arc::clone(&parts.client),
        Reading::all(gvr, parts.limits.frame_len_max).in_encoding(parts.encoding),
        Reflector::new(options)
            .with_backoff(Backoff::brisk())
            .giving_up(),
        sink,
        tally,
    );
    let before = parts.tally.contradictions();
    let end = tokio::select! {
        end = driver.run() => end,
        reason = contradiction(&*parts.client, &served, connections, before) => {
            warn!(resource = %gvr, reason = reason.as_str(), "upstream has another history than the cache");
            parts.tally.contradicted(reason);
            DriverEnd::WentBack
        }
    };
    match end {
        DriverEnd::Gone => Outcome::Gone,
        DriverEnd::WentBack => Outcome::WentBack,
        DriverEnd::GivenUp(reason) => Outcome::GivenUp(label_of(reason)),
    }
}

/// The reflector's reason as a label.
const fn label_of(reason: GiveUp) -> GiveUpReason {
    match reason {
        GiveUp::Unauthorized => GiveUpReason::Unauthorized,
        GiveUp::Forbidden => GiveUpReason::Forbidden,
        GiveUp::Undecodable => GiveUpReason::Undecodable,
        GiveUp::TooLong => GiveUpReason::TooLong,
        GiveUp::Saturated => GiveUpReason::Saturated,
        GiveUp::Refused => GiveUpReason::Refused,
        GiveUp::Unavailable => GiveUpReason::Unavailable,
    }
}

/// Asks until upstream tells how the resource's lists look, within the limits that hold for the driver too.
async fn learn_kind(parts: &SlotParts) -> Result<ResourceKind, Outcome> {
    let mut backoff = Backoff::brisk();
    let mut failures = Failures::default();
    let mut not_found = 0;
    loop {
        let error = match offer(parts).await {
            Ok(Some(kind)) => return Ok(kind),
            Ok(None) => return Err(Outcome::OtherEncoding),
            Err(error) => error,
        };
        if let ProbeError::Refused { code: 404, .. } = error {
            not_found += 1;
        }
        if not_found >= NOT_FOUND_MAX {
            return Err(Outcome::Gone);
        }
        debug!(resource = %parts.resource.gvr, %error, "the resource cannot be read yet");
        if let Some(reason) = failures.add(&error.failure(), false) {
            return Err(Outcome::GivenUp(label_of(reason)));
        }
        let wait = backoff.next(std::time::Instant::now(), crate::resource::random());
        tokio::time::sleep(wait).await;
    }
}

/// How the resource's lists look; `None` if upstream has it in another encoding only.
async fn offer(parts: &SlotParts) -> Result<Option<ResourceKind>, ProbeError> {
    let probe = probe(&*parts.client, &parts.resource.gvr).await?;
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
mod tests;
