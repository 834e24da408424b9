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
    /// Bytes of events that were sent.
    bytes: AtomicU64,
    /// Those of them that were counted for the watch's client.
    counted_bytes: AtomicU64,
}

impl WatchProgress {
    pub(super) fn new(cursor: Sequence, stage: ReadStage) -> Self {
        Self {
            cursor: AtomicU64::new(cursor),
            history: AtomicU64::new(number(stage)),
            bytes: AtomicU64::new(0),
            counted_bytes: AtomicU64::new(0),
        }
    }

    /// Notes the next batch, from where the watch reads, and how many bytes were sent.
    pub(super) fn note(&self, cursor: Sequence, stage: ReadStage, bytes: u64) {
        self.cursor.store(cursor, Ordering::Relaxed);
        self.history.store(number(stage), Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The bytes that were noted since the last call, each of them returned once.
    pub(super) fn take_bytes(&self) -> u64 {
        self.take_bytes_of(self.bytes.load(Ordering::Relaxed))
    }

    /// The same, if so many were sent in all.
    pub(super) fn take_bytes_of(&self, bytes: u64) -> u64 {
        // The maximum: another caller may have taken more in between.
        let counted = self.counted_bytes.fetch_max(bytes, Ordering::Relaxed);
        bytes.saturating_sub(counted)
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
