//! What the status page reads from the registry.

use std::sync::Arc;

use super::Registry;
use crate::cache::Retention;
use crate::gateway::recorders::StreamRecorder;
use crate::gateway::slot::Slot;
use crate::resource::CacheKey;
use crate::watch::WatchCut;

impl Registry {
    /// The bounds of every history, and all slots.
    pub(in crate::gateway) fn for_status(&self) -> (Retention, Vec<(CacheKey, Arc<Slot>)>) {
        (self.settings.retention, self.slots())
    }

    /// The recorder of a cache's watches, with their table.
    pub(super) fn stream_recorder(&self, key: &CacheKey) -> StreamRecorder {
        let cuts = Arc::clone(&self.cut_watches);
        StreamRecorder::new(&self.metrics, key, self.draining.clone(), cuts)
    }

    /// The watches that were cut lately, the latest first.
    pub(in crate::gateway) fn cut_watches(&self) -> Vec<WatchCut> {
        self.cut_watches.latest()
    }
}
