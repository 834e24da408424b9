//! Counts that an informer keeps while it reads.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use strum::VariantArray;

use super::failure::FailureKind;
use crate::resource::ResourceVersion;
use crate::upstream::reflector::RelistReason;

/// Counts of one informer or reflector since it was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InformerCounts {
    /// Bytes received in lists and watches.
    pub bytes: u64,
    /// Watches that the server accepted, including those that stream initial data.
    pub watches_opened: u64,
    /// How often a complete list, streamed or paged, replaced the state.
    pub replaced: u64,
    /// Changes of single objects that were passed on to the queue.
    pub events: u64,
    /// How often the server has shown that the held state is its own: by an event, a bookmark, a list or a comparison.
    pub proofs: u64,
    /// Events and bookmarks ignored because they repeat the held state, or are older.
    pub ignored: u64,
    /// Panics of the failure hook.
    pub hook_panics: u64,
    /// The version of the held state (client-go's `LastSyncResourceVersion`); `None` before the first list.
    pub last_version: Option<ResourceVersion>,
    relists: [u64; RelistReason::VARIANTS.len()],
    failures: [u64; FailureKind::VARIANTS.len()],
}

impl InformerCounts {
    /// How often all objects were requested for this reason.
    #[must_use]
    pub const fn relists(&self, reason: RelistReason) -> u64 {
        self.relists[reason as usize]
    }

    /// How often all objects were requested, the first time included.
    #[must_use]
    pub fn lists(&self) -> u64 {
        self.relists.iter().sum()
    }

    /// How many failures of this kind there were.
    #[must_use]
    pub const fn failures(&self, kind: FailureKind) -> u64 {
        self.failures[kind as usize]
    }

    pub(super) const fn count_relist(&mut self, reason: RelistReason) {
        self.relists[reason as usize] += 1;
    }

    pub(super) const fn count_failure(&mut self, kind: FailureKind) {
        self.failures[kind as usize] += 1;
    }
}

/// The live counters of one informer. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct InformerCounters(Arc<Mutex<InformerCounts>>);

impl InformerCounters {
    /// The counts at this moment.
    #[must_use]
    pub fn snapshot(&self) -> InformerCounts {
        self.lock().clone()
    }

    /// Hold the lock only for a few additions.
    pub(super) fn lock(&self) -> MutexGuard<'_, InformerCounts> {
        self.0.lock()
    }
}
