//! How old writes are when their events arrive. Reads the times of one event now and then.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::cache::{CacheWriter, Change};
use crate::decode::{WriteTimeSource, write_time};
use crate::resource::Object;

/// The times of at most one event are read in this time. Ten samples a second are enough for a histogram. Reading one costs about as much
/// as scanning the event twice: some microseconds for usual objects, so that a busy resource spends less than a thousandth of its time on it.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Chooses events, and reads when they were written.
#[derive(Debug)]
pub(super) struct AgeSampler {
    source: WriteTimeSource,
    /// Before this time no event is read.
    next_at: Option<Instant>,
}

impl AgeSampler {
    pub(super) fn new(writer: &CacheWriter) -> Self {
        let gvr = &writer.cache().kind().gvr;
        Self {
            source: WriteTimeSource::of(&gvr.group, &gvr.resource),
            next_at: None,
        }
    }

    /// The object to read of a batch that arrived at `arrived_at`: the first one, because it is the batch's first one that arrived then.
    /// `None` if an event was read a short time ago. A deleted object does not tell when it was deleted.
    pub(super) fn choose<'a>(
        &mut self,
        batch: &'a [Change],
        arrived_at: Instant,
    ) -> Option<&'a Object> {
        if self.next_at.is_some_and(|next_at| arrived_at < next_at) {
            return None;
        }
        let Change::Put(object) = batch.first()? else {
            return None;
        };
        self.next_at = Some(arrived_at + SAMPLE_INTERVAL);
        Some(object)
    }

    /// How old the write was that made `object` of `previous`, when it arrived, `ago` before now. Negative if it bears a time that the
    /// clock here has not reached. `None` if the object does not tell when it was written.
    pub(super) fn age(
        &self,
        object: &Object,
        previous: Option<&Object>,
        ago: Duration,
    ) -> Option<SignedDuration> {
        let written = write_time(
            self.source,
            object.encoding(),
            object.bytes(),
            previous.map(Object::bytes),
        )?;
        let ago = SignedDuration::try_from(ago).ok()?;
        Some(Timestamp::now().duration_since(written) - ago)
    }
}
