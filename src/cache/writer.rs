//! The one writer of a watch cache: applies what upstream sent, in order, and publishes it.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::event::Event;
use super::objects::ObjectMap;
use super::ring::{Retention, RingWriter};
use super::snapshot::{Epoch, Gap, Snapshot};
use super::{Observer, WatchCache};
use crate::resource::{EventKind, Object, ResourceKind, ResourceVersion};

/// One change as upstream reports it. Whether it adds or modifies is for the cache to know.
#[derive(Debug)]
pub enum Change {
    /// The object's new state.
    Put(Object),
    /// The object's last state, with the version of its deletion.
    Delete(Object),
}

impl Change {
    /// The object in either case.
    #[must_use]
    pub fn object(&self) -> &Object {
        match self {
            Self::Put(object) | Self::Delete(object) => object,
        }
    }
}

impl Change {
    const fn is_put(&self) -> bool {
        matches!(self, Self::Put(_))
    }
}

/// A list that must not replace the cache's state: it is older, or of another history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list at version {listed} does not continue what the cache held at {current}")]
pub struct VersionWentBack {
    /// Version of the list.
    pub listed: ResourceVersion,
    /// Version of the cache.
    pub current: ResourceVersion,
}

/// What a call did, for the driver to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// Events published.
    pub events: usize,
    /// Changes left out because their version is not beyond the cache's: repeated or going backwards.
    pub ignored: usize,
    /// Watchers woken.
    pub woken: usize,
}

/// Sole owner of the right to change a [`WatchCache`]. Not `Clone`.
#[derive(Debug)]
pub struct CacheWriter {
    cache: Arc<WatchCache>,
    ring: RingWriter<Arc<Event>>,
    state: Snapshot,
    /// Bytes of the state's lines.
    objects_len: usize,
    observer: Arc<dyn Observer>,
    /// Events that are in history and snapshot; the observer has those before `dispatched`.
    published: Vec<Arc<Event>>,
    dispatched: usize,
    /// Whether the observer has yet to be told of the version that was published last.
    is_behind: bool,
}

impl CacheWriter {
    /// A cache with nothing in it, not ready until the first [`CacheWriter::replace`].
    #[must_use]
    pub fn new(kind: ResourceKind, retention: Retention, observer: Arc<dyn Observer>) -> Self {
        Self::after_loss(kind, retention, observer, ResourceVersion(0))
    }

    /// The same for a resource of which clients may know versions up to `lost` from a history that upstream no longer has. Those
    /// that the new one has not reached are too old to resume from.
    #[must_use]
    pub fn after_loss(
        kind: ResourceKind,
        retention: Retention,
        observer: Arc<dyn Observer>,
        lost: ResourceVersion,
    ) -> Self {
        let ring = RingWriter::new(retention);
        let cache = Arc::new(WatchCache::new(kind, Arc::clone(ring.ring()), lost));
        let zero = ResourceVersion(0);
        let state = Snapshot {
            epoch: Epoch(0),
            sequence: 0,
            resource_version: zero,
            listed_at: zero,
            forgotten: zero,
            objects: ObjectMap::default(),
            gaps: Vec::new(),
        };
        Self {
            cache,
            ring,
            state,
            objects_len: 0,
            observer,
            published: Vec::new(),
            dispatched: 0,
            is_behind: false,
        }
    }

    /// The readers' side.
    #[must_use]
    pub fn cache(&self) -> &Arc<WatchCache> {
        &self.cache
    }

    /// [`CacheWriter::publish_list`] of objects in any order, of which those with the same key the last one counts, and all of the
    /// dispatching.
    ///
    /// # Errors
    /// As that.
    pub fn replace(
        &mut self,
        listed: Vec<Object>,
        version: ResourceVersion,
        now: Instant,
    ) -> Result<ApplyOutcome, VersionWentBack> {
        let mut applied = self.publish_list(ObjectMap::from_objects(listed), version, now)?;
        applied.woken = self.dispatch_all(now);
        Ok(applied)
    }

    /// Takes the state of a list: the first one fills the cache, a later one is compared with the state and
    /// the difference published in version order, so that open watches go on (decision 5). [`CacheWriter::dispatch`] has to follow.
    ///
    /// # Errors
    /// [`VersionWentBack`] when the list is older than the cache, or than a version that was proven, or when it tells another story of
    /// versions that the cache has passed: nothing changes then.
    pub fn publish_list(
        &mut self,
        listed: ObjectMap,
        version: ResourceVersion,
        now: Instant,
    ) -> Result<ApplyOutcome, VersionWentBack> {
        let held = self.state.resource_version;
        let epoch = Epoch(self.state.epoch.0 + 1);
        let proven = self.cache.begin_epoch(epoch);
        let current = held.max(proven);
        let went_back = VersionWentBack {
            listed: version,
            current,
        };
        if version < current {
            return Err(went_back);
        }
        self.state.epoch = epoch;
        if epoch == Epoch(1) {
            self.state.objects = listed;
            self.objects_len = self.state.objects.frames_len();
            self.state.listed_at = version;
            self.publish(version, Vec::new());
            return Ok(ApplyOutcome::default());
        }
        let gap = Gap {
            from: current,
            to: version,
        };
        let changes = difference(&self.state.objects, &listed, gap);
        if changes.iter().any(|change| contradicts(change, held, gap)) {
            return Err(went_back);
        }
        // The state at the proven version is known, what happened before and after it is not.
        self.state.remember_gap(held, current);
        self.state.remember_gap(current, version);
        let events: Vec<_> = changes
            .into_iter()
            .filter_map(|change| self.append(change, now))
            .collect();
        let applied = ApplyOutcome {
            events: events.len(),
            ..ApplyOutcome::default()
        };
        self.publish(version, events);
        Ok(applied)
    }

    /// [`CacheWriter::publish_changes`] and all of the dispatching.
    pub fn apply(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        now: Instant,
    ) -> ApplyOutcome {
        let mut applied = self.publish_changes(changes, now);
        applied.woken = self.dispatch_all(now);
        applied
    }

    /// Publishes a batch of changes at once, in one snapshot. [`CacheWriter::dispatch`] has to follow.
    pub fn publish_changes(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        now: Instant,
    ) -> ApplyOutcome {
        let mut applied = ApplyOutcome::default();
        let mut events = Vec::new();
        let before = self.state.resource_version;
        for change in changes {
            if self.knows(&change) {
                applied.ignored += 1;
                continue;
            }
            self.state.resource_version = change.object().resource_version();
            events.extend(self.append(change, now));
        }
        applied.events = events.len();
        // A deletion of what was never here shows nothing, and yet is progress.
        if !events.is_empty() || self.state.resource_version > before {
            self.publish(self.state.resource_version, events);
        }
        applied
    }

    /// Notes that nothing happened up to `version`: a bookmark from upstream. The observer is told once it has all events
    /// before.
    pub fn progress(&mut self, version: ResourceVersion, now: Instant) {
        if version > self.state.resource_version {
            let was_behind = self.is_behind;
            self.publish(version, Vec::new());
            // What is behind is caught up with in turns, and this with it.
            if !was_behind {
                self.dispatch(now);
            }
        }
    }

    /// Tells the observer of what was published, or of a part of it if it costs much. Returns how many watchers were woken.
    pub fn dispatch(&mut self, now: Instant) -> usize {
        if !self.is_behind {
            return 0;
        }
        let events = &self.published[self.dispatched..];
        let (through, version) = (self.state.sequence, self.state.resource_version);
        let dispatched = self.observer.dispatch(events, through, version, now);
        self.dispatched += dispatched.events;
        if self.dispatched == self.published.len() {
            // A relist may have been large.
            self.published = Vec::new();
            self.dispatched = 0;
            self.is_behind = false;
        }
        dispatched.woken
    }

    /// Whether there is more to dispatch.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    fn dispatch_all(&mut self, now: Instant) -> usize {
        let mut woken = 0;
        while self.is_behind {
            woken += self.dispatch(now);
        }
        woken
    }

    /// Forgets the history below `version`, as a compaction of etcd does: resuming and exact reads below it are too
    /// old from now on. Streams that are open go on. Versions ahead of the cache mean all of it.
    pub fn forget(&mut self, version: ResourceVersion) {
        let version = version.min(self.state.resource_version);
        if version > self.state.forgotten {
            self.state.forgotten = version;
            self.cache.publish(self.state.clone());
        }
    }

    /// Lets old history go; for a tick while no events arrive.
    pub fn expire(&mut self, now: Instant) {
        self.ring.expire(now);
        self.cache.trim();
    }

    /// Bytes of the objects' lines.
    #[must_use]
    pub fn objects_len(&self) -> usize {
        self.objects_len
    }

    /// Size of the history: events, bytes, and the age of its oldest part.
    #[must_use]
    pub fn history_size(&self) -> (usize, usize, Option<Instant>) {
        (self.ring.events(), self.ring.bytes(), self.ring.oldest_at())
    }

    /// Repeated or going backwards. One version may change several objects, if a foreign writer made them in
    /// one transaction.
    fn knows(&self, change: &Change) -> bool {
        let object = change.object();
        let (version, current) = (object.resource_version(), self.state.resource_version);
        let held = || {
            self.state
                .objects
                .object_at(object.key())
                .map(|held| held.resource_version())
        };
        match version.cmp(&current) {
            Ordering::Less => true,
            Ordering::Equal => {
                held().map_or(matches!(change, Change::Delete(_)), |held| held == version)
            }
            Ordering::Greater => false,
        }
    }

    fn append(&mut self, change: Change, now: Instant) -> Option<Arc<Event>> {
        let (kind, object, previous) = match change {
            Change::Put(object) => {
                let previous = self.state.objects.insert(object.clone());
                (
                    if previous.is_some() {
                        EventKind::Modified
                    } else {
                        EventKind::Added
                    },
                    object,
                    previous,
                )
            }
            // An object that was never here: no watcher can have seen it.
            Change::Delete(object) => {
                let previous = self.state.objects.remove(object.key())?;
                (EventKind::Deleted, object, Some(previous))
            }
        };
        self.objects_len -= previous.as_ref().map_or(0, |previous| previous.frame_len());
        if kind != EventKind::Deleted {
            self.objects_len += object.frame_len();
        }
        let event = Arc::new(Event::new(self.state.sequence, kind, object, previous, now));
        let sequence = self.ring.append(Arc::clone(&event), event.weight(), now);
        debug_assert_eq!(sequence, event.sequence(), "state and ring count alike");
        self.state.sequence += 1;
        Some(event)
    }

    /// History first, then the snapshot, then, by [`CacheWriter::dispatch`], the views, then the version that bookmarks may speak of:
    /// a reader who sees a later step finds the earlier ones done.
    fn publish(&mut self, version: ResourceVersion, events: Vec<Arc<Event>>) {
        self.state.resource_version = version;
        self.cache.publish(self.state.clone());
        if self.published.is_empty() {
            self.published = events;
        } else {
            self.published.extend(events);
        }
        self.is_behind = true;
    }
}

/// The changes that lead from the cached objects, still the state at `gap.from`, to the listed ones, of `gap.to`, in
/// version order.
fn difference(cached: &ObjectMap, listed: &ObjectMap, gap: Gap) -> Vec<Change> {
    // What is gone, and the last version at which it can have gone.
    let mut gone: Vec<(&Object, ResourceVersion)> = Vec::new();
    let mut changes: Vec<Change> = Vec::new();
    // Both in key order: one pass over each.
    let mut held = cached.iter().peekable();
    for object in listed.iter() {
        while let Some(other) = held.next_if(|held| held.key() < object.key()) {
            gone.push((other, gap.to));
        }
        if let Some(before) = held.next_if(|held| held.key() == object.key()) {
            if before.uid() != object.uid() {
                // At the version before its successor's the old object was gone already.
                let last = ResourceVersion(object.resource_version().0.saturating_sub(1));
                gone.push((before, last));
            } else if before.resource_version() == object.resource_version() {
                continue;
            }
        }
        changes.push(Change::Put(object.clone()));
    }
    gone.extend(held.map(|held| (held, gap.to)));
    deletions(gone, &mut changes, gap.from);
    // Stable: where versions had to be shared, the deletion of an object that was made anew comes first.
    changes.sort_by_key(|change| (change.object().resource_version(), change.is_put()));
    changes
}

/// Whether a difference cannot be what happened after `held`: an object was written before, and is not as it was held, or one is
/// gone although no version is left for its deletion. Then the list is of another history, as after a restored backup. At
/// `held` itself there may be more parts of one transaction.
fn contradicts(change: &Change, held: ResourceVersion, gap: Gap) -> bool {
    let version = change.object().resource_version();
    match change {
        Change::Put(_) => version < held,
        Change::Delete(_) => version > gap.to,
    }
}

/// Adds the deletions of what is gone, each with a version of its own, as early as can be.
///
/// Each of these objects was deleted at a version after `from`, at which nothing else was written; which one is not
/// known, but that there are enough of them is. Were they all told at the version of the list, a client cut off
/// among them would resume behind the rest, and a gateway downstream would take the rest for repetitions. The earliest
/// ones, because a client cut off in the gap and resuming at another replica has then heard of as many deletions as
/// there were.
fn deletions(
    mut gone: Vec<(&Object, ResourceVersion)>,
    changes: &mut Vec<Change>,
    from: ResourceVersion,
) {
    let taken: HashSet<u64, foldhash::fast::RandomState> = changes
        .iter()
        .map(|change| change.object().resource_version().0)
        .collect();
    gone.sort_by_key(|(_, last)| *last);
    let mut free = from.0 + 1;
    for (object, last) in gone {
        while taken.contains(&free) {
            free += 1;
        }
        // A foreign writer may have deleted several at once: then some share the last version.
        let version = free.min(last.0).max(from.0 + 1);
        changes.push(Change::Delete(object.at_version(ResourceVersion(version))));
        free = free.max(version + 1);
    }
}

#[cfg(test)]
mod tests;
