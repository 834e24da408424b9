//! How far a watch has come, for the status page. The watch writes here without waiting; only somebody who looks reads it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::Sequence;

/// Stands for a watch that reads no history.
const NO_HISTORY: u64 = u64::MAX;

/// The position of one watch: a cache line that neither the writer nor other watches read.
///
/// Relaxed throughout: no other memory depends on these numbers, and they may be a moment apart.
#[derive(Debug)]
pub(super) struct WatchProgress {
    /// The next batch of the view.
    cursor: AtomicU64,
    /// The next event of the history, as long as the watch reads it.
    history: AtomicU64,
}

impl WatchProgress {
    pub(super) fn new(cursor: Sequence, history: Option<Sequence>) -> Self {
        Self {
            cursor: AtomicU64::new(cursor),
            history: AtomicU64::new(history.unwrap_or(NO_HISTORY)),
        }
    }

    /// Notes the next batch and, before the view, the next event of the history.
    pub(super) fn note(&self, cursor: Sequence, history: Option<Sequence>) {
        self.cursor.store(cursor, Ordering::Relaxed);
        self.history
            .store(history.unwrap_or(NO_HISTORY), Ordering::Relaxed);
    }

    /// What was noted last.
    pub(super) fn read(&self) -> (Sequence, Option<Sequence>) {
        let history = self.history.load(Ordering::Relaxed);
        let cursor = self.cursor.load(Ordering::Relaxed);
        (cursor, (history != NO_HISTORY).then_some(history))
    }
}
