//! The sink of a slot's driver. It passes everything on to the cache, and keeps what others act on: whether requests can be served, the
//! template of bookmarks, the size of the cache, and how often the watch was opened. It counts no metrics.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::state::SlotStateMachine;
use crate::decode::Bookmark;
use crate::gateway::recorders::ResourceRecorder;
use crate::resource::{EventKind, Object, ResourceVersion};
use crate::upstream::cache_sink::CacheSink;
use crate::upstream::sink::{Sink, UpstreamWentBack};
use crate::view::{BookmarkTemplate, ServedResource};

/// Approximate bytes that a slot's cache holds. Between two caches, those of the last one.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct CacheLen(Arc<Mutex<usize>>);

impl CacheLen {
    pub(in crate::gateway) fn load(&self) -> usize {
        *self.0.lock()
    }

    fn store(&self, len: usize) {
        *self.0.lock() = len;
    }
}

/// Fills the cache of one attempt.
#[derive(Debug)]
pub(super) struct SlotSink {
    pub(super) cache_sink: CacheSink,
    pub(super) served: ServedResource,
    pub(super) slot_state: SlotStateMachine,
    pub(super) recorder: Arc<ResourceRecorder>,
    pub(super) cache_len: CacheLen,
    /// How often the upstream watch was opened.
    pub(super) connections: watch::Sender<u64>,
}

impl Sink for SlotSink {
    fn watch_opened(&mut self) {
        self.connections.send_modify(|count| *count += 1);
    }

    /// The bookmark that completes the initial data comes before [`SlotSink::replace`], so the first client gets bookmarks that look as
    /// upstream's do.
    fn bookmark(&mut self, object: &[u8], bookmark: &Bookmark) {
        let ServedResource { cache, hub } = &self.served;
        if let Some(template) = BookmarkTemplate::seen(object, bookmark.version_span, cache.kind())
            && template != hub.bookmark()
        {
            hub.learn_bookmark(template);
        }
    }

    fn restart(&mut self) {
        self.cache_sink.restart();
    }

    fn initial(&mut self, kind: EventKind, object: Object) {
        self.cache_sink.initial(kind, object);
    }

    /// The first call makes the slot ready: after the state was published and dispatched, and after metrics show it.
    fn replace(&mut self, version: ResourceVersion) -> Result<(), UpstreamWentBack> {
        self.cache_sink.replace(version)?;
        self.cache_len.store(self.cache_sink.cache_len());
        if self
            .slot_state
            .serve(&self.served, || self.recorder.filled())
        {
            let snapshot = self.served.cache.snapshot();
            let objects = snapshot.map_or(0, |snapshot| snapshot.objects.len());
            let resource = self.served.cache.kind().cache_key();
            tracing::info!(%resource, objects, %version, "serving from memory");
        }
        Ok(())
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        self.cache_sink.live(kind, object);
    }

    fn publish(&mut self) {
        self.cache_sink.publish();
        self.cache_len.store(self.cache_sink.cache_len());
    }

    fn progress(&mut self, version: ResourceVersion) {
        self.cache_sink.progress(version);
    }

    fn tick(&mut self) {
        self.cache_sink.tick();
        self.cache_len.store(self.cache_sink.cache_len());
    }

    fn hold_until(&self) -> Option<Instant> {
        self.cache_sink.hold_until()
    }

    async fn ready(&mut self) {
        self.cache_sink.ready().await;
    }
}

#[cfg(test)]
mod tests;
