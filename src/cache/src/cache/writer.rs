//! The only writer of a watch cache: applies what upstream sent, in order, and publishes it.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::arrival::{Arrival, WriteAge};
use super::catch_up::{Tombstone, deletions_known_since, tombstone_retention};
use super::event::Event;
use super::objects::ObjectMap;
use super::ring::{Retention, RingWriter};
use super::snapshot::{Epoch, Gap, Snapshot, floor};
use super::snapshot_tracker::{SnapshotTracker, WriterToken};
use super::{DispatchOutcome, Observer, WatchCache};
use crate::resource::{EventKind, KeyRef, Object, ResourceKind, ResourceVersion};

mod difference;
mod proof;
mod restore;

pub use difference::{Change, ListComparison, ListDifference};
pub use restore::{PastEvent, PriorState, RestoredHistory};

/// The error for a list that must not replace the cache's state: it is older, or it belongs to another history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list at version {listed} does not continue the cache's history at version {current}")]
pub struct VersionWentBack {
    /// The list's version.
    pub listed: ResourceVersion,
    /// The newest version that the cache has reached or proven.
    pub current: ResourceVersion,
}

/// The result of a call, for the driver's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// Events published.
    pub events: usize,
    /// Changes that were ignored because the cache already has their version: they are repeated or go backwards.
    pub ignored: usize,
    /// Watches woken.
    pub woken: usize,
    /// Frames that the observer laid out for watches.
    pub frames: usize,
}

impl ApplyOutcome {
    /// Adds the result of a dispatch.
    pub const fn add(&mut self, dispatched: DispatchOutcome) {
        self.woken += dispatched.woken;
        self.frames += dispatched.frames;
    }
}

/// Maximum bytes of what a writer keeps beyond the newest state.
#[derive(Clone, Copy, Debug)]
struct HistoryLens {
    events: usize,
    tombstones: usize,
}

/// The only handle that can change a [`WatchCache`]. Not `Clone`.
#[derive(Debug)]
pub struct CacheWriter {
    cache: Arc<WatchCache>,
    /// Shows that the cache has not ended.
    _token: Arc<WriterToken>,
    ring: RingWriter<Arc<Event>>,
    /// The latest deletions; `None` if clients cannot catch up.
    tombstones: Option<RingWriter<Tombstone>>,
    /// What the history and the tombstones may have in bytes while memory is not short.
    len_max: HistoryLens,
    state: Snapshot,
    /// Length of the frames of the state's objects, in bytes.
    objects_len: usize,
    observer: Arc<dyn Observer>,
    /// The age of the write that produced this version, once known, until its event is published.
    written: Option<(ResourceVersion, WriteAge)>,
    /// Events that are in the history and the snapshot. The observer has processed the first `dispatched` of them.
    published: Vec<Arc<Event>>,
    dispatched: usize,
    /// Whether the observer has not yet reached the version that was published last.
    is_behind: bool,
    /// Whether an event contradicts a proof.
    is_contradicted: bool,
    /// What is left of a list to be published.
    listed: Option<ListedChanges>,
}

/// The changes by which a list differs from the state, in the order of versions.
#[derive(Debug)]
struct ListedChanges {
    changes: std::vec::IntoIter<Change>,
    events: Vec<Arc<Event>>,
    version: ResourceVersion,
    now: Instant,
}

impl CacheWriter {
    /// An empty cache, not ready until the first [`CacheWriter::replace`].
    #[must_use]
    pub fn new(kind: ResourceKind, retention: Retention, observer: Arc<dyn Observer>) -> Self {
        Self::after_loss(kind, retention, observer, ResourceVersion(0))
    }

    /// Like [`CacheWriter::new`], for a resource of which clients may hold versions up to `lost` from a history that upstream no
    /// longer has. Such a version is too old to resume from until the new history has reached it.
    #[must_use]
    pub fn after_loss(
        kind: ResourceKind,
        retention: Retention,
        observer: Arc<dyn Observer>,
        lost: ResourceVersion,
    ) -> Self {
        let ring = RingWriter::new(retention);
        let token = Arc::new(WriterToken);
        let tracker = Arc::new(SnapshotTracker::new(ring.ring(), &token));
        let cache = WatchCache::new(kind, Arc::clone(ring.ring()), tracker, lost);
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
            cache: Arc::new(cache),
            _token: token,
            ring,
            tombstones: None,
            len_max: HistoryLens {
                events: retention.bytes_max,
                tombstones: 0,
            },
            state,
            objects_len: 0,
            observer,
            written: None,
            published: Vec::new(),
            dispatched: 0,
            is_behind: false,
            is_contradicted: false,
            listed: None,
        }
    }

    /// Keeps deletions beyond the history, at most about `bytes_max` bytes of objects, so that clients with older versions can catch up.
    /// Call it before [`CacheWriter::cache`].
    #[must_use]
    pub fn keeping_deletions(self, bytes_max: usize) -> Self {
        let tombstones = RingWriter::new(tombstone_retention(bytes_max));
        Self {
            cache: Arc::new(self.cache.keeping(Arc::clone(tombstones.ring()))),
            tombstones: Some(tombstones),
            len_max: HistoryLens {
                tombstones: bytes_max,
                ..self.len_max
            },
            ..self
        }
    }

    /// The newest state of the object with this key.
    #[must_use]
    pub fn object_at(&self, key: KeyRef<'_>) -> Option<&Object> {
        self.state.objects.object_at(key)
    }

    /// The readers' side.
    #[must_use]
    pub fn cache(&self) -> &Arc<WatchCache> {
        &self.cache
    }

    /// [`CacheWriter::publish_list`] with objects in any order, followed by a complete dispatch. Of objects with the same key, the
    /// last one is used.
    ///
    /// # Errors
    /// Those of [`CacheWriter::publish_list`].
    pub fn replace(
        &mut self,
        listed: Vec<Object>,
        version: ResourceVersion,
        now: Instant,
    ) -> Result<ApplyOutcome, VersionWentBack> {
        let mut applied = self.publish_list(ObjectMap::from_objects(listed), version, now)?;
        self.dispatch_all(&mut applied, now);
        Ok(applied)
    }

    /// [`CacheWriter::begin_list`] and the rest at once.
    ///
    /// # Errors
    /// Those of [`CacheWriter::begin_list`].
    pub fn publish_list(
        &mut self,
        listed: ObjectMap,
        version: ResourceVersion,
        now: Instant,
    ) -> Result<ApplyOutcome, VersionWentBack> {
        if let Some(comparison) = self.begin_list(listed, version, now)? {
            self.begin_changes(comparison.difference())?;
        }
        Ok(self.continue_list(usize::MAX))
    }

    /// Publishes a list. The first list fills the cache. A later list is to be compared with the state, by what is returned, and the difference
    /// is published as events in version order, so that open watches continue (decision 5): by [`CacheWriter::begin_changes`] and
    /// [`CacheWriter::continue_list`], and nothing else may change the state before. [`CacheWriter::dispatch`] must follow.
    ///
    /// # Errors
    /// [`VersionWentBack`] if the list is older than the cache or than a proven version, or contradicts the history that the cache
    /// has seen. Then the published state does not change.
    pub fn begin_list(
        &mut self,
        listed: ObjectMap,
        version: ResourceVersion,
        now: Instant,
    ) -> Result<Option<ListComparison>, VersionWentBack> {
        let held = self.state.resource_version;
        let epoch = Epoch(self.state.epoch.0 + 1);
        let proof = self.cache.begin_epoch(epoch);
        let current = held.max(proof.version);
        if version < current {
            return Err(VersionWentBack {
                listed: version,
                current,
            });
        }
        self.state.epoch = epoch;
        if epoch == Epoch(1) {
            self.state.objects = listed;
            self.objects_len = self.state.objects.frames_len();
            self.state.listed_at = version;
            self.publish(version, Vec::new());
            return Ok(None);
        }
        Ok(Some(ListComparison {
            cached: self.state.objects.clone(),
            listed,
            held,
            proof,
            gap: Gap {
                from: current,
                to: version,
            },
            now,
        }))
    }

    /// Continues [`CacheWriter::begin_list`] with the changes of the list.
    ///
    /// # Errors
    /// See [`CacheWriter::begin_list`].
    pub fn begin_changes(&mut self, difference: ListDifference) -> Result<(), VersionWentBack> {
        let ListDifference {
            changes,
            held,
            gap,
            now,
        } = difference;
        let changes = changes.ok_or(VersionWentBack {
            listed: gap.to,
            current: gap.from,
        })?;
        // The state at the proven version is known, but not what happened before and after it: two gaps.
        let floor = self.gap_floor();
        let (from, to) = (held, gap.from);
        self.state.remember_gap(Gap { from, to }, floor);
        self.state.remember_gap(gap, floor);
        self.listed = Some(ListedChanges {
            changes: changes.into_iter(),
            events: Vec::new(),
            version: gap.to,
            now,
        });
        Ok(())
    }

    /// Versions at or below this are too old without their gaps: neither the history nor the deletions reach them.
    fn gap_floor(&self) -> ResourceVersion {
        let floor = floor(&self.state, self.ring.ring());
        match &self.tombstones {
            Some(tombstones) => floor.min(deletions_known_since(&self.state, tombstones.ring())),
            None => floor,
        }
    }

    /// Whether changes of a list are left to be published.
    #[must_use]
    pub const fn is_listing(&self) -> bool {
        self.listed.is_some()
    }

    /// Appends so many changes of a list, and publishes the state with the last of them.
    pub fn continue_list(&mut self, count: usize) -> ApplyOutcome {
        let Some(mut listed) = self.listed.take() else {
            return ApplyOutcome::default();
        };
        for change in listed.changes.by_ref().take(count) {
            listed.events.extend(self.append(change, listed.now));
        }
        if listed.changes.len() > 0 {
            self.listed = Some(listed);
            return ApplyOutcome::default();
        }
        let applied = ApplyOutcome {
            events: listed.events.len(),
            ..ApplyOutcome::default()
        };
        self.publish(listed.version, listed.events);
        applied
    }

    /// [`CacheWriter::publish_changes`], followed by a complete dispatch.
    pub fn apply(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        now: Instant,
    ) -> ApplyOutcome {
        let mut applied = self.publish_changes(changes, now);
        self.dispatch_all(&mut applied, now);
        applied
    }

    /// Remembers how old the write of the next published change at `version` was when it arrived.
    pub fn note_age(&mut self, version: ResourceVersion, age: WriteAge) {
        self.written = Some((version, age));
    }

    /// Publishes a batch of changes together, in one snapshot. [`CacheWriter::dispatch`] must follow. The changes arrived at `now`.
    pub fn publish_changes(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        now: Instant,
    ) -> ApplyOutcome {
        let mut applied = ApplyOutcome::default();
        let mut events = Vec::new();
        let before = self.state.resource_version;
        let proof = self.cache.proof_beyond(before);
        for change in changes {
            if self.is_known(&change) {
                applied.ignored += 1;
                continue;
            }
            if let Some(proof) = proof {
                self.is_contradicted |= self.disproves(&change, proof);
            }
            let version = change.object().resource_version();
            events.extend(self.append(change, now));
            self.state.resource_version = version;
        }
        applied.events = events.len();
        // The deletion of an object that the cache never had is no event, but it advances the version.
        if !events.is_empty() || self.state.resource_version > before {
            self.publish(self.state.resource_version, events);
        }
        applied
    }

    /// Records a bookmark from upstream: nothing happened up to `version`. The observer receives it after all earlier
    /// events.
    pub fn progress(&mut self, version: ResourceVersion, now: Instant) {
        if version > self.state.resource_version {
            let proof = self.cache.proof_beyond(self.state.resource_version);
            self.is_contradicted |= proof
                .filter(|proof| proof.version <= version)
                .is_some_and(|proof| self.differs_from(proof));
            let was_behind = self.is_behind;
            self.publish(version, Vec::new());
            // If events are waiting to be dispatched, the version is dispatched with the last of them.
            if !was_behind {
                self.dispatch(now);
            }
        }
    }

    /// Passes published events to the observer: all of them, or a part if they cost much.
    pub fn dispatch(&mut self, now: Instant) -> DispatchOutcome {
        if !self.is_behind {
            return DispatchOutcome::default();
        }
        let events = &self.published[self.dispatched..];
        let (through, version) = (self.state.sequence, self.state.resource_version);
        let dispatched = self.observer.dispatch(events, through, version, now);
        self.dispatched += dispatched.events;
        if self.dispatched == self.published.len() {
            // Free the memory instead of clearing the vector: a relist may have been large.
            self.published = Vec::new();
            self.dispatched = 0;
            self.is_behind = false;
        }
        dispatched
    }

    /// Whether there is more to dispatch.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    fn dispatch_all(&mut self, applied: &mut ApplyOutcome, now: Instant) {
        while self.is_behind {
            applied.add(self.dispatch(now));
        }
    }

    /// Forgets the history below `version`, as a compaction of etcd does: resuming below it, and exact reads below it, fail as too
    /// old from now on. Open streams continue. A version ahead of the cache forgets the whole history.
    pub fn forget(&mut self, version: ResourceVersion) {
        let version = version.min(self.state.resource_version);
        if version > self.state.forgotten {
            self.state.forgotten = version;
            self.cache.publish(self.state.clone());
        }
    }

    /// Evicts old history. Call it from time to time while no events arrive.
    pub fn expire(&mut self, now: Instant) {
        self.ring.expire(now);
        self.cache.trim();
    }

    /// Evicts events that are older than `age_max`, and lets the history and the tombstones have what they may have at most, halved `cuts`
    /// times, because memory is short; no cuts let them grow again. Events of the last 15 seconds stay as far as `recent_max` bytes allow.
    /// Watches that have read what is evicted continue.
    pub fn cut_history(&mut self, cuts: u32, recent_max: usize, age_max: Duration, now: Instant) {
        self.ring.set_age_max(age_max);
        cut(&mut self.ring, self.len_max.events, cuts, recent_max, now);
        if let Some(tombstones) = &mut self.tombstones {
            cut(tombstones, self.len_max.tombstones, cuts, recent_max, now);
        }
        self.cache.trim();
    }

    /// Length of the objects' frames, in bytes.
    #[must_use]
    pub fn objects_len(&self) -> usize {
        self.objects_len
    }

    /// The size of the history: events and bytes.
    #[must_use]
    pub fn history_size(&self) -> (usize, usize) {
        (self.ring.events(), self.ring.bytes())
    }

    /// When the oldest event arrived that a client may still resume from; `None` if there is none.
    #[must_use]
    pub fn resumable_since(&self) -> Option<Instant> {
        let forgotten = self.state.forgotten;
        if forgotten == ResourceVersion(0) {
            return self.ring.oldest_at();
        }
        // Rare: of more relists than are remembered, the history before the first ones is forgotten although it is held.
        let ring = self.ring.ring();
        let first = ring.partition_point(|event| event.resource_version() <= forgotten);
        let mut arrived_at = None;
        let read = ring.read(first, |_, event| {
            arrived_at = Some(event.arrived_at());
            ControlFlow::Break(())
        });
        read.ok().and(arrived_at)
    }

    /// See [`RingWriter::evictable_since`], of the history.
    #[must_use]
    pub fn evictable_since(&self) -> Option<Instant> {
        self.ring.evictable_since()
    }

    /// The deletions that are kept for clients that catch up: their number and bytes. As long as the history has a deletion, too, its bytes
    /// are counted in both.
    #[must_use]
    pub fn tombstones_size(&self) -> (usize, usize) {
        self.tombstones
            .as_ref()
            .map_or((0, 0), |ring| (ring.events(), ring.bytes()))
    }

    /// Whether a change is repeated or goes backwards. Several changes at the cache's version may be new: a writer other than the
    /// API server can change several objects in one etcd transaction.
    fn is_known(&self, change: &Change) -> bool {
        let object = change.object();
        let (version, current) = (object.resource_version(), self.state.resource_version);
        let held = self.state.objects.object_at(object.key());
        match version.cmp(&current) {
            Ordering::Less => true,
            Ordering::Equal => match change {
                Change::Put(_) => held.is_some_and(|held| held.resource_version() == version),
                // A uid does not come back, so the deletion of a held object is new, also if it carries the object's own version.
                Change::Delete(_) => held.is_none_or(|held| held.uid() != object.uid()),
            },
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
            // The cache never had the object, so no watch can have seen it.
            Change::Delete(object) => {
                let previous = self.state.objects.remove(object.key())?;
                (EventKind::Deleted, object, Some(previous))
            }
        };
        self.objects_len -= previous.as_ref().map_or(0, |previous| previous.frame_len());
        if kind != EventKind::Deleted {
            self.objects_len += object.frame_len();
        } else if let Some(tombstones) = &mut self.tombstones {
            let tombstone = Tombstone {
                event: self.state.sequence,
                object: object.clone(),
            };
            tombstones.append(tombstone, object.allocated_len(), now);
        }
        let version = object.resource_version();
        let arrival = Arrival {
            at: now,
            age: self
                .written
                .take_if(|(written, _)| *written == version)
                .map(|(_, age)| age),
        };
        let mut event = Event::new(self.state.sequence, kind, object, previous, arrival);
        if version <= self.state.resource_version {
            event = event.continuing();
        }
        self.state.resource_version = self.state.resource_version.max(version);
        let event = Arc::new(event);
        let sequence = self.ring.append(Arc::clone(&event), event.weight(), now);
        debug_assert_eq!(
            sequence,
            event.sequence(),
            "state and ring disagree on the sequence"
        );
        self.state.sequence += 1;
        Some(event)
    }

    /// Publishes the snapshot of events that the history already has, and leaves the rest to [`CacheWriter::dispatch`]. The order is:
    /// first the history, then the snapshot, then the views, then the version that bookmarks may carry. A reader that sees the result
    /// of a later step therefore also sees the results of the earlier ones.
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

/// Cuts a ring that may have `len_max` bytes otherwise.
fn cut<T>(ring: &mut RingWriter<T>, len_max: usize, cuts: u32, recent_max: usize, now: Instant) {
    let bytes_max = len_max.checked_shr(cuts).unwrap_or_default();
    ring.bound_bytes(bytes_max, recent_max.min(len_max), now);
}

#[cfg(test)]
mod tests;
