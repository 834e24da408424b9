//! One cached resource: the task that keeps its cache filled, for as long as somebody wants it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use super::freshness::Freshness;
use super::tally::{ResourceTally, StreamTally};
use crate::cache::{Observer, Retention, Writer};
use crate::resource::{Encoding, Layout, ResourceKind};
use crate::upstream::backoff::Backoff;
use crate::upstream::cache_sink::{CacheSink, FillTally};
use crate::upstream::client::Client;
use crate::upstream::discovery::DiscoveredResource;
use crate::upstream::driver::{Driver, DriverEnd, ProbeError, Reading, offers_protobuf, probe};
use crate::upstream::reflector::{InitialVersion, Reflector, ReflectorOptions, Streaming};
use crate::view::{Hub, Served};

/// Items of a page where upstream does not stream lists, as client-go and kube-rs ask for.
const PAGE_LEN: u32 = 500;
/// A resource whose probe is refused with 404 so often is gone.
const NOT_FOUND_MAX: u32 = 3;

/// How far a cache is.
#[derive(Clone, Debug)]
pub(super) enum Filling {
    /// Not ready, for this reason.
    Waiting(&'static str),
    /// It can be served from.
    Ready(Served),
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
}

/// What a slot's task is given.
pub(super) struct SlotParts {
    pub(super) resource: DiscoveredResource,
    pub(super) encoding: Encoding,
    pub(super) client: Arc<Client>,
    pub(super) retention: Retention,
    pub(super) limits: ReadLimits,
    pub(super) tally: Arc<ResourceTally>,
}

/// The registry's hold on one cached resource.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) filling: watch::Receiver<Filling>,
    pub(super) freshness: Freshness,
    pub(super) streams: Arc<StreamTally>,
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
        let task = tasks.spawn(keep_filled(parts, sender));
        let now = Instant::now();
        Self {
            filling,
            freshness: Freshness::default(),
            streams,
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
            Filling::Waiting(_) | Filling::OtherEncoding | Filling::Gone => false,
        };
        !watched && used_at.elapsed() > timeout
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

/// Fills a cache, and a new one should upstream's versions go back, until upstream no longer has the resource.
async fn keep_filled(parts: SlotParts, filling: watch::Sender<Filling>) {
    let gvr = parts.resource.gvr.clone();
    loop {
        let kind = match learn_kind(&parts, &filling).await {
            Some(Offer::Kind(kind)) => kind,
            Some(Offer::OtherEncoding) => {
                filling.send_replace(Filling::OtherEncoding);
                return;
            }
            None => break,
        };
        let hub = Arc::new(Hub::new(&kind));
        let writer = Writer::new(kind, parts.retention, Arc::clone(&hub) as Arc<dyn Observer>);
        let served = Served {
            cache: Arc::clone(writer.cache()),
            hub: Arc::clone(&hub),
        };
        let tally = Arc::clone(&parts.tally).for_cache(served, filling.clone());
        let options = ReflectorOptions {
            streaming: Streaming::Preferred,
            page_len: PAGE_LEN,
            start_from: None,
            initial: InitialVersion::Latest,
        };
        let delay = parts.limits.coalesce_delay_max;
        let sink = CacheSink::new(writer, delay, Arc::clone(&tally) as Arc<dyn FillTally>);
        let driver = Driver::new(
            Arc::clone(&parts.client),
            Reading::all(&gvr, parts.limits.frame_len_max).in_encoding(parts.encoding),
            Reflector::new(options).with_backoff(Backoff::brisk()),
            sink,
            tally,
        );
        let end = driver.run().await;
        hub.close();
        match end {
            DriverEnd::Gone => break,
            DriverEnd::WentBack => {
                warn!(resource = %gvr, "upstream's versions went back: clients must list again");
                filling.send_replace(Filling::Waiting("upstream's versions went back"));
            }
        }
    }
    info!(resource = %gvr, "upstream no longer has the resource");
    filling.send_replace(Filling::Gone);
}

/// Whether upstream has the resource in the encoding that is wanted.
enum Offer {
    Kind(ResourceKind),
    OtherEncoding,
}

/// Asks until upstream tells how the resource's lists look; `None` if it has no such resource.
async fn learn_kind(parts: &SlotParts, filling: &watch::Sender<Filling>) -> Option<Offer> {
    let mut backoff = Backoff::brisk();
    let mut not_found = 0;
    loop {
        match offer(parts).await {
            Ok(offer) => return Some(offer),
            Err(error) => {
                if let ProbeError::Refused { code: 404, .. } = error {
                    not_found += 1;
                }
                if not_found >= NOT_FOUND_MAX {
                    return None;
                }
                warn!(resource = %parts.resource.gvr, %error, "the resource cannot be read yet");
                filling.send_replace(Filling::Waiting("upstream cannot be read"));
            }
        }
        let wait = backoff.next(std::time::Instant::now(), crate::resource::random());
        tokio::time::sleep(wait).await;
    }
}

async fn offer(parts: &SlotParts) -> Result<Offer, ProbeError> {
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
    let offered = match (parts.encoding, kind.layout) {
        (Encoding::Json, _) => true,
        (Encoding::Protobuf, Layout::Dynamic) => false,
        (Encoding::Protobuf, Layout::Typed) => {
            offers_protobuf(&*parts.client, &resource.gvr).await?
        }
    };
    Ok(if offered {
        Offer::Kind(kind)
    } else {
        Offer::OtherEncoding
    })
}
