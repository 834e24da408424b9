//! The states that readers hold of all caches, also of those that have ended (decision 50).

use std::sync::Arc;

use parking_lot::Mutex;

use crate::cache::SnapshotTracker;

/// What readers hold of states that are not the newest any more. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct OlderStates(Arc<Mutex<Vec<Arc<SnapshotTracker>>>>);

impl OlderStates {
    /// Counts what readers hold of a new cache, too.
    pub(super) fn add(&self, tracker: &Arc<SnapshotTracker>) {
        self.0.lock().push(Arc::clone(tracker));
    }

    /// Bytes of memory. Caches that have ended are forgotten once nobody holds any of their states.
    pub(super) fn memory(&self) -> usize {
        let trackers = {
            let mut trackers = self.0.lock();
            trackers.retain(|tracker| !tracker.is_empty());
            trackers.clone()
        };
        trackers.iter().map(|tracker| tracker.memory()).sum()
    }
}
