//! The owner of a cache: fills it, notices its end, and fills the next one (decisions 19, 21 and 22).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::{HistoryLoss, SlotParts, SlotState};
use crate::admission::resident;
use crate::cache::CacheWriter;
use crate::gateway::consistency::contradiction;
use crate::metrics::{CacheState, GiveUpReason, Label};
use crate::resource::{Encoding, Layout, ResourceKind, ResourceVersion};
use crate::task::catch_panic;
use crate::upstream::backoff::Backoff;
use crate::upstream::cache_sink::{CacheSink, FillRecorder};
use crate::upstream::driver::{Driver, DriverEnd, ProbeError, ReadSpec, offers_protobuf, probe};
use crate::upstream::reflector::{
    Failures, GiveUp, InitialVersion, ReflectorMachine, ReflectorOptions, StreamingLists,
};
use crate::view::{Hub, ServedResource};

/// Items of a page where upstream does not stream lists, as client-go and kube-rs ask for.
const PAGE_LEN: u32 = 500;
/// Upstream's history is replaced seldom, as by a restored backup. If it happens again within this, nothing can be kept of it,
/// and to fill a cache each time would cost upstream a full read.
const WENT_BACK_APART: Duration = Duration::from_secs(600);
/// A resource whose probe is refused with 404 so often is gone.
const NOT_FOUND_MAX: u32 = 3;

/// How one attempt at a cache ended.
enum FillOutcome {
    /// Upstream no longer has the resource.
    Gone,
    /// Not in this encoding.
    OtherEncoding,
    /// Upstream has another history than before: clients must list again.
    WentBack,
    /// It cannot be kept.
    GivenUp(GiveUpReason),
}

/// The owner of a cache: fills one, and a new one when it ends, by return or by panic, until upstream no longer has the
/// resource. Clients are told in order: first nobody is sent to the old cache any more, then its watches end.
pub(super) struct CacheKeeper {
    parts: SlotParts,
    filling: watch::Sender<SlotState>,
    relief: watch::Sender<()>,
    brisk: Backoff,
    patient: Backoff,
    went_back_at: Option<Instant>,
    loss: Arc<HistoryLoss>,
    /// Bytes that were freed when it was given up for memory: so much room must there be before it is filled again.
    room: usize,
}

impl CacheKeeper {
    pub(super) fn new(
        parts: SlotParts,
        filling: watch::Sender<SlotState>,
        relief: watch::Sender<()>,
        loss: Arc<HistoryLoss>,
    ) -> Self {
        Self {
            parts,
            filling,
            relief,
            brisk: Backoff::brisk(),
            patient: Backoff::patient(),
            went_back_at: None,
            loss,
            room: 0,
        }
    }

    pub(super) async fn run(mut self) {
        self.parts.tally.announce(CacheState::Filling);
        loop {
            let outcome = self.outcome().await;
            let Some(wait) = self.conclude(outcome) else {
                return;
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Of one attempt.
    async fn outcome(&self) -> FillOutcome {
        let mut relief = self.relief.subscribe();
        if self.is_memory_short() {
            return FillOutcome::GivenUp(GiveUpReason::Memory);
        }
        let attempt = catch_panic(attempt(&self.parts, &self.filling, self.loss.version()));
        let attempt = tokio::select! {
            attempt = Box::pin(attempt) => attempt,
            // What the attempt owns goes with it.
            _ = relief.changed() => return FillOutcome::GivenUp(GiveUpReason::Memory),
        };
        attempt.unwrap_or_else(|panic| {
            let resource = &self.parts.resource.gvr;
            error!(%resource, %panic, "the task that fills a cache panicked");
            FillOutcome::GivenUp(GiveUpReason::Panicked)
        })
    }

    fn is_memory_short(&self) -> bool {
        let max = self.parts.limits.memory_max;
        max > 0 && resident().is_some_and(|len| len.saturating_add(self.room) > max)
    }

    /// Tells clients how an attempt ended. The pause before the next one; `None` if there will be none.
    fn conclude(&mut self, outcome: FillOutcome) -> Option<Duration> {
        let resource = &self.parts.resource.gvr;
        match outcome {
            FillOutcome::Gone => {
                info!(%resource, "upstream no longer has the resource");
                self.replace(SlotState::Gone, Hub::close);
                None
            }
            FillOutcome::OtherEncoding => {
                self.parts.tally.announce(CacheState::NotOffered);
                self.replace(SlotState::OtherEncoding, Hub::close);
                // Somebody may have answered in upstream's place.
                Some(pause(&mut self.patient))
            }
            FillOutcome::WentBack => {
                warn!(%resource, "upstream has another history: clients must list again");
                self.note_loss();
                let before = self.went_back_at.replace(Instant::now());
                if before.is_some_and(|before| before.elapsed() < WENT_BACK_APART) {
                    return Some(self.give_up(GiveUpReason::WentBack));
                }
                self.parts.tally.announce(CacheState::Filling);
                self.replace(
                    SlotState::Waiting("upstream's versions went back"),
                    Hub::expire,
                );
                Some(Duration::ZERO)
            }
            FillOutcome::GivenUp(reason) => Some(self.give_up(reason)),
        }
    }

    /// Forwards what comes from now on; the pause before the next attempt.
    fn give_up(&mut self, reason: GiveUpReason) -> Duration {
        if reason == GiveUpReason::Memory && matches!(&*self.filling.borrow(), SlotState::Ready(_))
        {
            // One that is larger than the half comes back all the same, if only because it may have shrunk.
            let room_max = self.parts.limits.memory_max / 2;
            self.room = self.parts.tally.cache_len().min(room_max);
        }
        self.parts.tally.given_up(reason);
        let backoff = match reason {
            GiveUpReason::Unavailable => &mut self.brisk,
            GiveUpReason::Unauthorized
            | GiveUpReason::Forbidden
            | GiveUpReason::Undecodable
            | GiveUpReason::TooLong
            | GiveUpReason::Saturated
            | GiveUpReason::Refused
            | GiveUpReason::Memory
            | GiveUpReason::WentBack
            | GiveUpReason::Panicked => &mut self.patient,
        };
        let wait = pause(backoff);
        let end = match reason == GiveUpReason::WentBack {
            true => Hub::expire,
            false => Hub::close,
        };
        self.replace(SlotState::GivenUp(reason), end);
        let resource = &self.parts.resource.gvr;
        warn!(%resource, reason = reason.as_str(), ?wait, "no cache of it: its requests are forwarded");
        wait
    }

    /// Replaces the state, and ends the watches of a cache that was served from until now.
    fn replace(&self, next: SlotState, end: fn(&Hub)) {
        if let SlotState::Ready(served) = self.filling.send_replace(next) {
            end(&served.hub);
        }
    }

    /// Remembers up to where clients may know the history that is no longer upstream's.
    fn note_loss(&self) {
        if let SlotState::Ready(served) = &*self.filling.borrow() {
            self.loss.note(served.cache.newest_version());
        }
    }
}

fn pause(backoff: &mut Backoff) -> Duration {
    backoff.next(std::time::Instant::now(), crate::resource::random())
}

/// Fills one cache and keeps it up to date for as long as that goes well.
async fn attempt(
    parts: &SlotParts,
    filling: &watch::Sender<SlotState>,
    lost: ResourceVersion,
) -> FillOutcome {
    let gvr = &parts.resource.gvr;
    let kind = match learn_kind(parts).await {
        Ok(kind) => kind,
        Err(outcome) => return outcome,
    };
    let hub = Arc::new(Hub::new(&kind));
    let observer = (parts.observer)(Arc::clone(&hub));
    let writer = CacheWriter::after_loss(kind, parts.retention, observer, lost);
    let served = ServedResource {
        cache: Arc::clone(writer.cache()),
        hub,
    };
    let tally = Arc::clone(&parts.tally).for_cache(served.clone(), filling.clone());
    let options = ReflectorOptions {
        streaming: StreamingLists::Preferred,
        page_len: PAGE_LEN,
        start_from: None,
        initial: InitialVersion::Latest,
    };
    let delay = parts.limits.coalesce_delay_max;
    let sink = CacheSink::new(writer, delay, Arc::clone(&tally) as Arc<dyn FillRecorder>);
    let connections = tally.connections();
    let driver = Driver::new(
        Arc::clone(&parts.client),
        ReadSpec::all(gvr, parts.limits.frame_len_max).in_encoding(parts.encoding),
        ReflectorMachine::new(options)
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
        DriverEnd::Gone => FillOutcome::Gone,
        DriverEnd::WentBack => FillOutcome::WentBack,
        DriverEnd::GivenUp(reason) => FillOutcome::GivenUp(label_of(reason)),
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
async fn learn_kind(parts: &SlotParts) -> Result<ResourceKind, FillOutcome> {
    let mut backoff = Backoff::brisk();
    let mut failures = Failures::default();
    let mut not_found = 0;
    loop {
        let error = match offer(parts).await {
            Ok(Some(kind)) => return Ok(kind),
            Ok(None) => return Err(FillOutcome::OtherEncoding),
            Err(error) => error,
        };
        if let ProbeError::Refused { code: 404, .. } = error {
            not_found += 1;
        }
        if not_found >= NOT_FOUND_MAX {
            return Err(FillOutcome::Gone);
        }
        debug!(resource = %parts.resource.gvr, %error, "the resource cannot be read yet");
        if let Some(reason) = failures.add(&error.failure(), false) {
            return Err(FillOutcome::GivenUp(label_of(reason)));
        }
        tokio::time::sleep(pause(&mut backoff)).await;
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
