//! The state of a cache in one moment, as a checkpoint needs it. Taken without a lock, and without holding the writer up.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::cache::{Epoch, Event, Lagged, Sequence, Snapshot, WatchCache, known_since};
use crate::resource::{KeyRef, Object, ResourceVersion};

/// A snapshot and the events that lead to it.
#[derive(Clone, Debug)]
pub struct Capture {
    snapshot: Arc<Snapshot>,
    events: Vec<Arc<Event>>,
    base_version: ResourceVersion,
    proven: ResourceVersion,
    lost: ResourceVersion,
}

impl Capture {
    /// Captures the cache; `None` if it is not filled yet.
    #[must_use]
    pub fn of(cache: &WatchCache) -> Option<Self> {
        // Before the snapshot: what is given out later would be claimed for a state that does not have it, and upstream's next event would then
        // look like another history's.
        let given = cache.newest_given();
        let snapshot = cache.snapshot()?;
        // This first: an eviction afterwards can only make the history shorter, which the next lines notice. What is forgotten does not count:
        // events below that are in the history, and the base is the state before them.
        let known = known_since(&snapshot, cache.history());
        let oldest = cache.history().oldest().min(snapshot.sequence);
        let (events, base_version) = match events_between(cache, oldest, snapshot.sequence) {
            Ok(events) => {
                let first = events.first().filter(|event| event.sequence() > 0);
                let before = |event: &Arc<Event>| {
                    ResourceVersion(event.resource_version().0.saturating_sub(1))
                };
                let base_version = first.map_or(known, |first| before(first).max(known));
                (events, base_version)
            }
            Err(Lagged { .. }) => (Vec::new(), snapshot.resource_version),
        };
        Some(Self {
            proven: given.max(snapshot.resource_version),
            // A reader takes no version 0: no state has it.
            base_version: base_version.max(ResourceVersion(1)),
            snapshot,
            events,
            lost: cache.lost(),
        })
    }

    /// The newest state.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The events, oldest first.
    #[must_use]
    pub fn events(&self) -> &[Arc<Event>] {
        &self.events
    }

    /// The version from which on the events are complete.
    #[must_use]
    pub const fn base_version(&self) -> ResourceVersion {
        self.base_version
    }

    /// The newest version that clients may have.
    pub(super) const fn proven(&self) -> ResourceVersion {
        self.proven
    }

    /// The newest version of an earlier history that upstream no longer has.
    pub(super) const fn lost(&self) -> ResourceVersion {
        self.lost
    }

    /// The sequence of the first event that the capture does not hold.
    #[must_use]
    pub fn next_sequence(&self) -> Sequence {
        self.snapshot.sequence
    }

    /// The number of lists that the cache was filled from.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.snapshot.epoch
    }

    /// Gives up the oldest events until the rest has at most `len_max` bytes, if it can.
    pub fn shorten_to(&mut self, len_max: u64) {
        let mut excess = self.frames_len().saturating_sub(len_max);
        let mut kept = self.events.as_slice();
        while excess > 0
            && let Some((first, rest)) = kept.split_first()
        {
            excess = excess.saturating_sub(first.object().frame_len() as u64);
            self.base_version = self.base_version.max(first.resource_version());
            kept = rest;
        }
        let dropped = self.events.len() - kept.len();
        self.events.drain(..dropped);
    }

    /// About the length of the frames that a checkpoint of it holds.
    #[must_use]
    pub fn frames_len(&self) -> u64 {
        let events = self.events.iter().map(|event| event.object().frame_len());
        let len = self.snapshot.objects.frames_len() + events.sum::<usize>();
        len as u64
    }

    /// Visits the objects as they were before the first event, in key order; returns their number, or the first error.
    pub(super) fn each_base_object<E>(
        &self,
        mut visit: impl FnMut(&Object) -> Result<(), E>,
    ) -> Result<u64, E> {
        // The first event of an object has the object's state in the base.
        let mut touched: BTreeMap<KeyRef<'_>, Option<&Object>> = BTreeMap::new();
        for event in &self.events {
            let first = touched.entry(event.object().key());
            first.or_insert_with(|| event.previous());
        }
        let mut touched = touched.into_iter().peekable();
        let mut count = 0;
        let mut visit = |object: Option<&Object>| {
            count += u64::from(object.is_some());
            object.map_or(Ok(()), &mut visit)
        };
        for object in self.snapshot.objects.iter() {
            while let Some((_, earlier)) = touched.next_if(|(key, _)| *key < object.key()) {
                visit(earlier)?;
            }
            match touched.next_if(|(key, _)| *key == object.key()) {
                Some((_, earlier)) => visit(earlier)?,
                None => visit(Some(object))?,
            }
        }
        for (_, earlier) in touched {
            visit(earlier)?;
        }
        Ok(count)
    }
}

/// The events from the sequence `from` to the one before `until`.
///
/// # Errors
/// [`Lagged`] if the cache has evicted a part of them.
pub fn events_between(
    cache: &WatchCache,
    from: Sequence,
    until: Sequence,
) -> Result<Vec<Arc<Event>>, Lagged> {
    let mut events = Vec::new();
    cache.history().read(from, |_, event| {
        if event.sequence() >= until {
            return ControlFlow::Break(());
        }
        events.push(Arc::clone(event));
        ControlFlow::Continue(())
    })?;
    Ok(events)
}
