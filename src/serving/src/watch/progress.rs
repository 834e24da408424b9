//! How far a watch has come, for the status page. The watch writes here without waiting; only somebody who looks reads it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::Sequence;

/// Stands for [`ReadStage::View`].
const NO_HISTORY: u64 = u64::MAX;
/// Stands for [`ReadStage::Future`].
const FUTURE: u64 = u64::MAX - 1;
/// Added to the sequence of [`ReadStage::Initial`]. Sequences do not come near it.
const INITIAL: u64 = 1 << 63;

/// From where a watch reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadStage {
    /// From nowhere, until a version is reached that is still in the future.
    Future,
    /// From its initial events or a catch-up. What it reads next is the history from this event on.
    Initial(Sequence),
    /// From the history, from this event on.
    History(Sequence),
    /// From the batches of its view.
    View,
}

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
    pub(super) fn new(cursor: Sequence, stage: ReadStage) -> Self {
        Self {
            cursor: AtomicU64::new(cursor),
            history: AtomicU64::new(number(stage)),
        }
    }

    /// Notes the next batch and from where the watch reads.
    pub(super) fn note(&self, cursor: Sequence, stage: ReadStage) {
        self.cursor.store(cursor, Ordering::Relaxed);
        self.history.store(number(stage), Ordering::Relaxed);
    }

    /// What was noted last.
    pub(super) fn read(&self) -> (Sequence, ReadStage) {
        let stage = match self.history.load(Ordering::Relaxed) {
            NO_HISTORY => ReadStage::View,
            FUTURE => ReadStage::Future,
            next if next >= INITIAL => ReadStage::Initial(next - INITIAL),
            next => ReadStage::History(next),
        };
        (self.cursor.load(Ordering::Relaxed), stage)
    }
}

const fn number(stage: ReadStage) -> u64 {
    match stage {
        ReadStage::Future => FUTURE,
        ReadStage::Initial(next) => INITIAL + next,
        ReadStage::History(next) => next,
        ReadStage::View => NO_HISTORY,
    }
}
