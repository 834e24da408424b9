//! The gateway's sink: a watch cache behind its one writer. Reads no stream and knows no request.

mod initial_buffer;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::driver::now;
use super::sink::{Sink, UpstreamWentBack};
use crate::cache::{ApplyOutcome, CacheWriter, Change};
use crate::resource::{EventKind, Object, ResourceVersion};
use initial_buffer::InitialBuffer;

/// What waking one watcher and writing to it takes, about: while the last batch is still on its way to many of them,
/// the next one may as well grow.
const WAKE_COST: Duration = Duration::from_micros(2);

/// What a cache tells as it fills, for metrics. Called from the driver's task.
pub trait FillRecorder: Send + Sync + fmt::Debug {
    /// A batch was published.
    fn applied(&self, applied: ApplyOutcome);
    /// State after a batch or a tick.
    fn state(&self, state: FillState);
}

/// Sizes of a cache.
#[derive(Clone, Copy, Debug)]
pub struct FillState {
    /// Version of the state.
    pub version: ResourceVersion,
    /// Objects.
    pub objects: usize,
    /// Bytes of their lines.
    pub objects_len: usize,
    /// Events in the history.
    pub events: usize,
    /// Bytes in the history.
    pub bytes: usize,
    /// Age of the oldest part of the history.
    pub oldest_age: Duration,
}

/// Fills a watch cache.
#[derive(Debug)]
pub struct CacheSink {
    writer: CacheWriter,
    tally: Arc<dyn FillRecorder>,
    /// Initial data on its way; replaces the state when complete.
    side: InitialBuffer,
    /// Changes that will be published together, in the order they came.
    batch: Vec<Change>,
    /// Longest time that changes are held back to be delivered together.
    coalesce_delay_max: Duration,
    hold_until: Option<Instant>,
}

impl CacheSink {
    /// A sink that holds back a busy resource's events for at most `coalesce_delay_max`, to deliver them together.
    #[must_use]
    pub fn new(
        writer: CacheWriter,
        coalesce_delay_max: Duration,
        tally: Arc<dyn FillRecorder>,
    ) -> Self {
        Self {
            writer,
            tally,
            side: InitialBuffer::default(),
            batch: Vec::new(),
            coalesce_delay_max,
            hold_until: None,
        }
    }

    /// Tells watchers of what was published, or of a first part of it. [`Sink::ready`] does the rest.
    fn dispatch(&mut self, mut applied: ApplyOutcome) {
        let now = now();
        applied.woken = self.writer.dispatch(now);
        let delay = WAKE_COST * u32::try_from(applied.woken).unwrap_or(u32::MAX);
        self.hold_until = Some(now + delay.min(self.coalesce_delay_max));
        self.tally.applied(applied);
    }

    fn tell_state(&self) {
        let Some(snapshot) = self.writer.cache().snapshot() else {
            return;
        };
        let (events, bytes, oldest_at) = self.writer.history_size();
        self.tally.state(FillState {
            version: snapshot.resource_version,
            objects: snapshot.objects.len(),
            objects_len: self.writer.objects_len(),
            events,
            bytes,
            oldest_age: oldest_at.map_or(Duration::ZERO, |at| now().saturating_duration_since(at)),
        });
    }
}

impl Sink for CacheSink {
    fn restart(&mut self) {
        self.side.clear();
    }

    fn initial(&mut self, kind: EventKind, object: Object) {
        match kind {
            EventKind::Deleted => self.side.remove(&object),
            EventKind::Added | EventKind::Modified => self.side.put(object),
        }
    }

    fn replace(&mut self, version: ResourceVersion) -> Result<(), UpstreamWentBack> {
        let objects = self.side.take();
        let applied = self
            .writer
            .publish_list(objects, version, now())
            .map_err(|_| UpstreamWentBack)?;
        self.dispatch(applied);
        self.tell_state();
        Ok(())
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        self.batch.push(match kind {
            EventKind::Added | EventKind::Modified => Change::Put(object),
            EventKind::Deleted => Change::Delete(object),
        });
    }

    fn publish(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let published_at = now();
        let applied = self
            .writer
            .publish_changes(std::mem::take(&mut self.batch), published_at);
        self.dispatch(applied);
        self.tell_state();
    }

    fn progress(&mut self, version: ResourceVersion) {
        self.writer.progress(version, now());
    }

    fn tick(&mut self) {
        self.writer.expire(now());
        self.tell_state();
    }

    fn hold_until(&self) -> Option<Instant> {
        self.hold_until
    }

    /// What costs much is dispatched in slices, between which other tasks have their turn.
    async fn ready(&mut self) {
        while self.writer.is_behind() {
            tokio::task::yield_now().await;
            self.dispatch(ApplyOutcome::default());
        }
    }
}

#[cfg(test)]
mod tests;
