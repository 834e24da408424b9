//! What an informer counts while it reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::failure::FailureKind;
use crate::resource::ResourceVersion;
use crate::upstream::reflector::RelistReason;

/// What was counted up to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InformerCounts {
    /// Bytes of lists and watches.
    pub bytes: u64,
    /// Watches that the server opened, streamed initial data among them.
    pub watches_opened: u64,
    /// How often initial data was complete.
    pub replaced: u64,
    /// Changes of single objects.
    pub events: u64,
    /// Events and bookmarks left out because they repeat what is held, or are older.
    pub ignored: u64,
    /// Panics of the failure hook.
    pub hook_panics: u64,
    /// The version that is held (client-go's `LastSyncResourceVersion`); `None` before the first.
    pub last_version: Option<ResourceVersion>,
    relists: [u64; RelistReason::ALL.len()],
    failures: [u64; FailureKind::ALL.len()],
}

impl InformerCounts {
    /// How often all objects were asked for, for this reason.
    #[must_use]
    pub const fn relists(&self, reason: RelistReason) -> u64 {
        self.relists[reason as usize]
    }

    /// How many failures of this kind there were.
    #[must_use]
    pub const fn failures(&self, kind: FailureKind) -> u64 {
        self.failures[kind as usize]
    }

    pub(super) const fn relisted(&mut self, reason: RelistReason) {
        self.relists[reason as usize] += 1;
    }

    pub(super) const fn failed(&mut self, kind: FailureKind) {
        self.failures[kind as usize] += 1;
    }
}

/// Where one informer's counts are kept; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct InformerCounters(Arc<Mutex<InformerCounts>>);

impl InformerCounters {
    /// The counts up to now.
    #[must_use]
    pub fn snapshot(&self) -> InformerCounts {
        self.lock().clone()
    }

    /// Held for a few additions only.
    pub(super) fn lock(&self) -> MutexGuard<'_, InformerCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
