//! What the status page reads from the registry.

use std::sync::Arc;

use super::Registry;
use crate::cache::Retention;
use crate::recorders::StreamRecorder;
use crate::resource::CacheKey;
use crate::slot::Slot;
use crate::talkers::{OpenWatches, TopTalkers};
use crate::watch::{SWEEPS, WatchCut, WatchTable};

impl Registry {
    /// The bounds of every history, which are lower while memory is short, and all slots.
    pub(crate) fn for_status(&self) -> (Retention, Vec<(CacheKey, Arc<Slot>)>) {
        let mut retention = self.settings.retention;
        let cuts = self.cuts.bound().cuts;
        retention.bytes_max = retention.bytes_max.checked_shr(cuts).unwrap_or_default();
        (retention, self.slots())
    }

    /// Requests that were forwarded although their callers had been authorized to read from memory.
    pub(crate) fn permitted_forwards(&self) -> u64 {
        *self.permitted_forwards.lock()
    }

    /// Requests that clients share: they were answered as from memory.
    pub(crate) fn shared_requests(&self) -> u64 {
        self.table_lists.requests()
    }

    /// Whether the drain has begun; its delay may not be over.
    pub(crate) fn is_draining(&self) -> bool {
        self.leaving.get().is_some()
    }

    /// The recorder of a cache's watches, with their table.
    pub(super) fn stream_recorder(&self, key: &CacheKey) -> StreamRecorder {
        let cuts = Arc::clone(&self.cut_watches);
        let table = WatchTable::new(key.clone(), cuts, Arc::clone(&self.talkers));
        StreamRecorder::new(&self.metrics, key, self.draining.clone(), table)
    }

    /// Counts what was sent to open watches since the last sweep, so that it counts for the time when it was sent.
    pub(super) async fn sweep_watches(&self) {
        for (_, slot) in self.slots() {
            for part in 0..SWEEPS {
                slot.streams.table.sweep(part, None);
                tokio::task::yield_now().await;
            }
        }
    }

    /// The clients that talk most.
    pub(crate) fn top_talkers(&self) -> TopTalkers {
        let mut open = OpenWatches::default();
        for (_, slot) in self.slots() {
            for part in 0..SWEEPS {
                slot.streams.table.sweep(part, Some(&mut open));
            }
        }
        self.talkers.top(open)
    }

    /// The watches that were cut lately, the latest first.
    pub(crate) fn cut_watches(&self) -> Vec<WatchCut> {
        self.cut_watches.latest()
    }
}
