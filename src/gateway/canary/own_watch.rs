//! A watch of the gateway's own for one object, read as the connection of a client over HTTP/2 reads it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Buf as _;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::decode::{WatchLine, scan_watch};
use crate::resource::{Encoding, FieldTable, ResourceVersion};
use crate::selector::{FieldSelector, Selector};
use crate::view::ServedResource;
use crate::watch::{Start, Timing, Watch, WatchBody, WatchRecorder, WatchTotals};

/// Longer than a round takes.
const WATCH_TIMEOUT: Duration = Duration::from_secs(120);
/// Events that are remembered of a round: its own write, and those of others that write the same object, which are a mistake.
const EVENTS_MAX: usize = 16;

/// The watch of one round.
pub(super) struct OwnWatch {
    body: WatchBody,
    /// Events that were read, with the time.
    events: Vec<(ResourceVersion, Instant)>,
    has_ended: bool,
}

/// It is no client's watch, so it is not in the clients' metrics.
#[derive(Debug)]
struct Unrecorded;

impl WatchRecorder for Unrecorded {
    fn delivered(&self, _: u64, _: u64) {}

    fn ended(&self, _: WatchTotals) {}
}

impl OwnWatch {
    /// Watches from the cache's newest version on; `None` if the cache has none.
    pub(super) fn open(served: &ServedResource, namespace: &str, name: &str) -> Option<Self> {
        let fields = FieldTable::of(&served.cache.kind().gvr);
        let selector = Selector {
            namespace: Some(namespace.to_owned()),
            fields: FieldSelector::parse(&format!("metadata.name={name}"), fields).ok()?,
            ..Selector::default()
        };
        // The view is joined before the start is determined, so that no event is missed in between.
        let subscription = served.hub.join(&selector);
        let version = served.cache.snapshot()?.resource_version;
        let start = Start::After {
            sequence: served.cache.resume_after(version).ok()?,
            version,
        };
        let timing = Timing {
            started: Instant::now(),
            timeout: WATCH_TIMEOUT,
            bookmarks: false,
        };
        let watch = Watch::new(
            served.clone(),
            subscription,
            start,
            timing,
            Arc::new(Unrecorded),
        );
        Some(Self {
            body: watch.into(),
            events: Vec::new(),
            has_ended: false,
        })
    }

    /// Reads the next frame; never returns once the watch has ended. Cancelling loses nothing: a frame comes whole or not at all.
    pub(super) async fn read(&mut self) {
        if self.has_ended {
            return std::future::pending().await;
        }
        let frame = self.body.frame().await.and_then(Result::ok);
        let now = Instant::now();
        let Some(mut data) = frame.and_then(|frame| frame.into_data().ok()) else {
            self.has_ended = true;
            return;
        };
        let lines = data.copy_to_bytes(data.remaining());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let scanned = scan_watch(Encoding::Json, line, FieldTable::default());
            if let Ok(WatchLine::Event { parts, .. }) = scanned {
                // The newest ones are kept: the gateway's own write may be the last of many.
                if self.events.len() == EVENTS_MAX {
                    self.events.remove(0);
                }
                self.events.push((parts.resource_version, now));
            }
        }
    }

    /// When the event of this version was read; `None` if the watch ends before.
    pub(super) async fn until(&mut self, version: ResourceVersion) -> Option<Instant> {
        loop {
            let found = self.events.iter().find(|(found, _)| *found == version);
            if let Some((_, at)) = found {
                return Some(*at);
            }
            if self.has_ended {
                return None;
            }
            self.read().await;
        }
    }
}
