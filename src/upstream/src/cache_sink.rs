//! The gateway's [`Sink`]: collects the driver's changes and publishes them through the only writer of a watch cache.

mod age_sampler;
mod initial_buffer;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::SignedDuration;

use super::driver::{now, run_blocking};
use super::sink::{LateChange, Sink, UpstreamWentBack};
use crate::cache::{
    ApplyOutcome, CacheWriter, Change, ListComparison, ListDifference, ObjectMap, PriorState,
    WriteAge,
};
use crate::resource::{EventKind, KeyRef, Object, ObjectKey, ResourceVersion};
use age_sampler::AgeSampler;
use initial_buffer::InitialBuffer;

/// Approximate cost of waking one watch and writing to it. While watches are still being woken for the last batch, the next
/// batch may grow.
const WAKE_COST: Duration = Duration::from_micros(2);

/// Events that are restored, or found by a list, before other tasks run: about a millisecond.
const RESTORED_PER_SLICE: usize = 256;
const LISTED_PER_SLICE: usize = 256;
/// Objects of a list and of the state that are compared on the driver's task; more are compared where they hold up no other task.
const COMPARED_INLINE_MAX: usize = 8_192;
/// Chunks of objects that are freed before other tasks run.
const SPARE_PER_SLICE: usize = 4;

/// Objects of the initial data between two reports of progress: about half a page.
const OBJECTS_PER_REPORT: usize = 256;

/// Receives the progress of a cache, for metrics; `()` records nothing. Nothing else may depend on it. Called from the driver's task.
pub trait FillRecorder: Send + Sync + fmt::Debug {
    /// So many objects of the initial data have been received.
    fn filling(&self, _objects: usize) {}
    /// The initial data is complete.
    fn filled(&self) {}
    /// A batch was published.
    fn applied(&self, _applied: ApplyOutcome) {}
    /// The sizes of the cache after a batch, a relist or a tick.
    fn state(&self, _state: FillState) {}
    /// The age of a write was read when its event arrived; of few events. Negative if the clocks differ.
    fn write_age(&self, _age: SignedDuration) {}
}

impl FillRecorder for () {}

/// Version and sizes of a cache.
#[derive(Clone, Copy, Debug)]
pub struct FillState {
    /// Resource version of the snapshot.
    pub version: ResourceVersion,
    /// Number of objects.
    pub objects: usize,
    /// Length of the objects' frames, in bytes.
    pub objects_len: usize,
    /// Number of events in the history.
    pub events: usize,
    /// Length of the history, in bytes.
    pub bytes: usize,
    /// Number of deletions kept for clients that catch up.
    pub tombstones: usize,
    /// Length of these deletions, in bytes.
    pub tombstones_len: usize,
    /// Age of the oldest event that a client may still resume from; zero if there is none.
    pub history_age: Duration,
}

/// Bytes of memory that a cache holds beyond its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryMemory {
    /// The history.
    pub events: usize,
    /// Age may evict the events that arrived until then, and no less; `None` if it may evict none.
    pub evictable_since: Option<Instant>,
    /// Deletions kept for clients that catch up.
    pub tombstones: usize,
    /// Initial data that is not complete yet.
    pub initial: usize,
}

/// Fills a watch cache from what a driver reads.
#[derive(Debug)]
pub struct CacheSink {
    writer: CacheWriter,
    recorder: Arc<dyn FillRecorder>,
    /// Initial data received so far; replaces the state when it is complete.
    initial: InitialBuffer,
    /// A list that is not compared with the state yet.
    comparison: Option<ListComparison>,
    /// What is left of a list that was compared with the state.
    spare: ObjectMap,
    /// The version of a bookmark that came while a list was published.
    progressed: Option<ResourceVersion>,
    /// Number of objects in it, those included that were replaced since.
    initial_count: usize,
    /// Changes to be published together, in the order of arrival.
    batch: Vec<Change>,
    /// When the first bytes of the batch arrived; `None` before the first batch.
    arrived_at: Option<Instant>,
    age_sampler: AgeSampler,
    /// Longest time that changes are held back so that they are delivered together.
    coalesce_delay_max: Duration,
    /// Until then more changes may join the batch: see [`Sink::hold_until`].
    hold_until: Option<Instant>,
}

impl CacheSink {
    /// Creates a sink that holds back the events of a busy resource for at most `coalesce_delay_max`, to deliver them
    /// together.
    #[must_use]
    pub fn new(
        writer: CacheWriter,
        coalesce_delay_max: Duration,
        recorder: Arc<dyn FillRecorder>,
    ) -> Self {
        Self {
            age_sampler: AgeSampler::new(&writer),
            writer,
            recorder,
            initial: InitialBuffer::default(),
            comparison: None,
            spare: ObjectMap::default(),
            progressed: None,
            initial_count: 0,
            batch: Vec::new(),
            arrived_at: None,
            coalesce_delay_max,
            hold_until: None,
        }
    }

    /// Approximate bytes that the cache holds: objects, history and tombstones.
    #[must_use]
    pub fn cache_len(&self) -> usize {
        let (_, history_len) = self.writer.history_size();
        let (_, tombstones_len) = self.writer.tombstones_size();
        self.writer.objects_len() + history_len + tombstones_len
    }

    /// What the cache holds beyond the objects, in bytes.
    #[must_use]
    pub fn history_memory(&self) -> HistoryMemory {
        HistoryMemory {
            events: self.writer.history_size().1,
            evictable_since: self.writer.evictable_since(),
            tombstones: self.writer.tombstones_size().1,
            initial: self.initial.memory_len(),
        }
    }

    /// See [`CacheWriter::is_contradicted`].
    #[must_use]
    pub const fn is_contradicted(&self) -> bool {
        self.writer.is_contradicted()
    }

    /// See [`CacheWriter::cut_history`].
    pub fn cut_history(&mut self, cuts: u32, recent_max: usize, age_max: Duration) {
        self.writer.cut_history(cuts, recent_max, age_max, now());
    }

    /// Fills the cache with a state that was held before, for a driver that watches from its version. Other tasks run between slices of the
    /// work.
    pub async fn restore(&mut self, state: PriorState) {
        let mut rest = self.writer.begin_restored(state);
        while self.writer.continue_restored(&mut rest, RESTORED_PER_SLICE) {
            tokio::task::yield_now().await;
        }
        self.dispatch(ApplyOutcome::default());
        self.record_state();
    }

    /// Whether a list is not published yet: [`Sink::ready`] publishes the rest, and what came after it.
    #[must_use]
    pub const fn is_listing(&self) -> bool {
        self.comparison.is_some() || self.writer.is_listing()
    }

    /// Publishes the first changes of a list that was compared with the state.
    fn begin_changes(&mut self, difference: ListDifference) -> Result<(), UpstreamWentBack> {
        self.writer
            .begin_changes(difference)
            .map_err(|_| UpstreamWentBack)?;
        self.continue_list();
        Ok(())
    }

    /// Publishes the next changes of a list.
    fn continue_list(&mut self) {
        let applied = self.writer.continue_list(LISTED_PER_SLICE);
        if !self.is_listing() {
            self.dispatch(applied);
            self.record_state();
        }
    }

    /// Dispatches what was published to the views, or a first part of it if that is expensive; [`Sink::ready`] dispatches
    /// the rest.
    fn dispatch(&mut self, mut applied: ApplyOutcome) {
        let now = now();
        applied.add(self.writer.dispatch(now));
        let delay = WAKE_COST * u32::try_from(applied.woken).unwrap_or(u32::MAX);
        self.hold_until = Some(now + delay.min(self.coalesce_delay_max));
        self.recorder.applied(applied);
    }

    /// Reads how old one event of the batch was when it arrived, unless one was read a short time ago.
    fn sample_age(&mut self, arrived_at: Instant) {
        let Some(object) = self.age_sampler.choose(&self.batch, arrived_at) else {
            return;
        };
        let previous = self.writer.object_at(object.key());
        let ago = now().saturating_duration_since(arrived_at);
        if let Some(age) = self.age_sampler.age(object, previous, ago) {
            self.recorder.write_age(age);
            let age = Duration::try_from(age).unwrap_or_default();
            self.writer
                .note_age(object.resource_version(), WriteAge::from(age));
        }
    }

    fn record_state(&self) {
        let Some(snapshot) = self.writer.cache().snapshot() else {
            return;
        };
        let (events, bytes) = self.writer.history_size();
        let since = self.writer.resumable_since();
        let (tombstones, tombstones_len) = self.writer.tombstones_size();
        self.recorder.state(FillState {
            version: snapshot.resource_version,
            objects: snapshot.objects.len(),
            objects_len: self.writer.objects_len(),
            events,
            bytes,
            tombstones,
            tombstones_len,
            history_age: since.map_or(Duration::ZERO, |at| now().saturating_duration_since(at)),
        });
    }
}

impl Sink for CacheSink {
    fn arrived(&mut self, at: Instant) {
        self.arrived_at = Some(at);
    }

    fn restart(&mut self) {
        self.initial.clear();
        self.initial_count = 0;
    }

    fn initial(&mut self, kind: EventKind, object: Object) {
        match kind {
            EventKind::Deleted => self.initial.remove(&object),
            EventKind::Added | EventKind::Modified => self.initial.put(object),
        }
        self.initial_count += 1;
        if self.initial_count.is_multiple_of(OBJECTS_PER_REPORT) {
            self.recorder.filling(self.initial_count);
        }
    }

    fn replace(&mut self, version: ResourceVersion) -> Result<(), UpstreamWentBack> {
        let objects = self.initial.take();
        self.initial_count = 0;
        self.recorder.filled();
        if self.writer.cache().snapshot().is_some() {
            // Most of its objects are those that the cache has, and each is freed: that takes long, and nothing waits for it.
            self.spare = objects.clone();
        }
        let begun = self.writer.begin_list(objects, version, now());
        match begun.map_err(|_| UpstreamWentBack)? {
            Some(comparison) if comparison.object_count() > COMPARED_INLINE_MAX => {
                self.comparison = Some(comparison);
                Ok(())
            }
            Some(comparison) => self.begin_changes(comparison.difference()),
            None => {
                self.continue_list();
                Ok(())
            }
        }
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        self.batch.push(match kind {
            EventKind::Added | EventKind::Modified => Change::Put(object),
            EventKind::Deleted => Change::Delete(object),
        });
    }

    fn late(&mut self, kind: EventKind, object: &Object) -> LateChange {
        self.publish();
        let Some(held) = self.writer.object_at(object.key()) else {
            return match kind {
                EventKind::Deleted => LateChange::Known,
                EventKind::Added | EventKind::Modified => LateChange::Missing,
            };
        };
        let is_same = held.uid() == object.uid();
        if kind == EventKind::Deleted && is_same {
            let version = self.writer.cache().newest_given();
            self.batch.push(Change::Delete(object.at_version(version)));
            return LateChange::Applied;
        }
        match held.resource_version() >= object.resource_version() {
            true => LateChange::Known,
            false => LateChange::Missing,
        }
    }

    fn object_count(&self) -> Option<usize> {
        Some(self.writer.cache().snapshot()?.objects.len())
    }

    fn holds(&self, versions: &[(ObjectKey, ResourceVersion)]) -> bool {
        versions.iter().all(|(key, version)| {
            let held = self.writer.object_at(KeyRef::of_joined(key.as_str()));
            held.is_some_and(|held| held.resource_version() == *version)
        })
    }

    fn newest_given(&self) -> Option<ResourceVersion> {
        self.writer.cache().snapshot()?;
        Some(self.writer.cache().newest_given())
    }

    fn publish(&mut self) {
        if self.batch.is_empty() || self.is_listing() {
            return;
        }
        let arrived_at = self.arrived_at.unwrap_or_else(now);
        self.sample_age(arrived_at);
        let applied = self
            .writer
            .publish_changes(std::mem::take(&mut self.batch), arrived_at);
        self.dispatch(applied);
        self.record_state();
    }

    fn progress(&mut self, version: ResourceVersion) {
        if self.is_listing() {
            self.progressed = Some(version);
        } else {
            self.writer.progress(version, now());
        }
    }

    fn tick(&mut self) {
        self.writer.expire(now());
        self.record_state();
    }

    fn hold_until(&self) -> Option<Instant> {
        self.hold_until
    }

    /// Publishes and dispatches what is left, and frees what a list leaves, a slice at a time. Other tasks run between the slices.
    async fn ready(&mut self) -> Result<(), UpstreamWentBack> {
        if let Some(comparison) = self.comparison.take() {
            let difference = run_blocking(move || comparison.difference()).await;
            self.begin_changes(difference)?;
        }
        while self.is_listing() {
            tokio::task::yield_now().await;
            self.continue_list();
        }
        if let Some(version) = self.progressed.take() {
            self.publish();
            self.progress(version);
        }
        self.publish();
        while self.writer.is_behind() {
            tokio::task::yield_now().await;
            self.dispatch(ApplyOutcome::default());
        }
        while self.spare.drop_last(SPARE_PER_SLICE) {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
