//! What the status page reads from the registry.

use std::sync::Arc;

use super::Registry;
use crate::cache::Retention;
use crate::recorders::StreamRecorder;
use crate::resource::CacheKey;
use crate::slot::Slot;
use crate::watch::WatchCut;

impl Registry {
    /// The bounds of every history, which are lower while memory is short, and all slots.
    pub(crate) fn for_status(&self) -> (Retention, Vec<(CacheKey, Arc<Slot>)>) {
        let mut retention = self.settings.retention;
        let cuts = self.cuts.bound().cuts;
        retention.bytes_max = retention.bytes_max.checked_shr(cuts).unwrap_or_default();
        (retention, self.slots())
    }

    /// Whether the drain has begun; its delay may not be over.
    pub(crate) fn is_draining(&self) -> bool {
        self.leaving.get().is_some()
    }

    /// The recorder of a cache's watches, with their table.
    pub(super) fn stream_recorder(&self, key: &CacheKey) -> StreamRecorder {
        let cuts = Arc::clone(&self.cut_watches);
        StreamRecorder::new(&self.metrics, key, self.draining.clone(), cuts)
    }

    /// The watches that were cut lately, the latest first.
    pub(crate) fn cut_watches(&self) -> Vec<WatchCut> {
        self.cut_watches.latest()
    }
}
