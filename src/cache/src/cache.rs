//! The watch cache of one resource: the newest snapshot, the history of events in a ring, and the version that both have reached.
//!
//! One [`CacheWriter`] changes a [`WatchCache`]; any number of readers read it without taking a lock. The cache does not know
//! its watches: the writer passes each batch to an [`Observer`] once readers can see the batch.
//!
//! Start with [`CacheWriter`], which applies changes to the objects ([`ObjectMap`]), appends them to the history ([`Ring`]) and
//! publishes a [`Snapshot`]. A watch resumes with [`WatchCache::resume_after`], or if its version is too old for
//! that, with [`WatchCache::catch_up`]; a list at an older version uses [`Rewind`].

mod arrival;
mod catch_up;
mod checksum;
mod event;
mod objects;
mod rewind;
mod ring;
mod snapshot;
mod snapshot_tracker;
mod sync;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

pub use arrival::{Arrival, WriteAge};
pub use catch_up::CatchUp;
pub use checksum::Checksum;
pub use event::Event;
pub use objects::{
    BlockFormat, Chunk, ChunksMemory, DeflateBlock, LengthForm, MapPosition, ObjectMap,
    SortedBuilder,
};
pub use rewind::Rewind;
pub use ring::{Lagged, Retention, Ring, RingWriter, Sequence};
pub use snapshot::{Epoch, GAPS_MAX, Gap, RewindError, Snapshot, floor, known_since};
pub use snapshot_tracker::SnapshotTracker;
pub use writer::{
    ApplyOutcome, CacheWriter, Change, ListComparison, ListDifference, PastEvent, PriorState,
    RestoredHistory, VersionWentBack,
};

use crate::resource::{ResourceKind, ResourceVersion};
use crate::sync::{Mutex, MutexGuard};
use catch_up::Tombstone;
use rewind::PastStates;
pub(crate) use sync::Flag;
use sync::{AtomicU64, Ordering, Published};

/// The part of a batch that an observer processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchOutcome {
    /// Events processed, counted from the first: at least one if the batch has any.
    pub events: usize,
    /// Watches woken, for metrics.
    pub woken: usize,
    /// Frames laid out for watches; watches with the same parameters share them.
    pub frames: usize,
}

/// Receives every batch from the writer, after the batch is in the ring and in the snapshot.
pub trait Observer: Send + Sync + fmt::Debug {
    /// Processes the next `events`. With them the resource reaches `version`, and every event has a sequence below `through`.
    /// A batch without events reports progress: a list or a bookmark.
    ///
    /// If the events cost much, the observer may process only the first ones; it is then called again with the rest. It must not
    /// count `version` as reached before it has processed all of them.
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        through: Sequence,
        version: ResourceVersion,
        now: Instant,
    ) -> DispatchOutcome;
}

/// The readers' side of the cache of one resource.
#[derive(Debug)]
pub struct WatchCache {
    kind: ResourceKind,
    history: Arc<Ring<Arc<Event>>>,
    snapshot: Published<Option<Arc<Snapshot>>>,
    tracker: Arc<SnapshotTracker>,
    proven: Mutex<ProvenVersion>,
    past_states: PastStates,
    /// The newest version of an earlier history that upstream no longer has; 0 if there was none.
    lost: AtomicU64,
    /// The latest deletions, beyond the history; `None` if clients cannot catch up.
    tombstones: Option<Arc<Ring<Tombstone>>>,
}

/// The newest version at which the state was proven to equal upstream's, although no event has reached it.
#[derive(Clone, Copy, Debug, Default)]
struct ProvenVersion {
    version: ResourceVersion,
    /// The version of the snapshot that was proven: upstream had these objects at `version`, and no others.
    of: ResourceVersion,
    /// The epoch of the newest state; a proof of an earlier one is void.
    epoch: Epoch,
}

impl WatchCache {
    fn new(
        kind: ResourceKind,
        history: Arc<Ring<Arc<Event>>>,
        tracker: Arc<SnapshotTracker>,
        lost: ResourceVersion,
    ) -> Self {
        Self {
            lost: AtomicU64::new(lost.0),
            tracker,
            kind,
            history,
            snapshot: Published::new(Arc::new(None)),
            proven: Mutex::default(),
            past_states: PastStates::default(),
            tombstones: None,
        }
    }

    /// A cache that also keeps deletions. Nothing else has a reference to this one yet.
    fn keeping(&self, tombstones: Arc<Ring<Tombstone>>) -> Self {
        self.tracker.add_tombstones(&tombstones);
        let (kind, history) = (self.kind.clone(), Arc::clone(&self.history));
        Self {
            tombstones: Some(tombstones),
            ..Self::new(kind, history, Arc::clone(&self.tracker), self.lost())
        }
    }

    /// The resource's names, layout and encoding.
    #[must_use]
    pub fn kind(&self) -> &ResourceKind {
        &self.kind
    }

    /// The bounded history of events.
    #[must_use]
    pub fn history(&self) -> &Ring<Arc<Event>> {
        &self.history
    }

    /// The newest snapshot; `None` until the first list is complete.
    #[must_use]
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.with(Option::clone)
    }

    /// The newest version that a client may have received: by an event, a list, a bookmark or a proof. What asks whether upstream still has
    /// the cache's history compares with this version; the newest event may be far behind it.
    #[must_use]
    pub fn newest_given(&self) -> ResourceVersion {
        let reached = self.snapshot().map(|snapshot| snapshot.resource_version);
        self.proven().version.max(reached.unwrap_or_default())
    }

    fn publish(&self, snapshot: Snapshot) {
        let snapshot = Arc::new(snapshot);
        self.tracker.add(&snapshot);
        self.snapshot.publish(Arc::new(Some(snapshot)));
    }

    /// What readers hold of states that are not the newest any more.
    #[must_use]
    pub fn tracker(&self) -> &Arc<SnapshotTracker> {
        &self.tracker
    }

    /// The sequence of the first event that a watch from `version` needs. Of several events of that version it gets all but the first again:
    /// its client may have left among them.
    ///
    /// # Errors
    /// [`VersionTooOld`] if events after `version` were evicted or never known, or if only a lost history has reached `version`. In the
    /// last case the client would wait until upstream reaches that version again, and then continue with objects that no longer exist.
    pub fn resume_after(&self, version: ResourceVersion) -> Result<Sequence, VersionTooOld> {
        let snapshot = self.snapshot().ok_or(VersionTooOld { floor: version })?;
        let reached = snapshot.resource_version;
        if version > reached && version <= self.lost() && version > self.proven().version {
            return Err(VersionTooOld { floor: reached });
        }
        // Find the sequence before the floor. If events are evicted between the two steps, the floor rises and `version` is refused
        // below. In the opposite order, an eviction could move the sequence beyond events that the older floor still promised, and
        // the watch would miss them.
        let first = self
            .history
            .partition_point(|event| event.is_covered_by(version));
        let floor = floor(&snapshot, &self.history);
        // A version inside a gap is refused even if an event of this cache carries it. A client may have got that version from another
        // replica, together with the true history up to it, and then needs events that the difference of a relist does not hold.
        match snapshot.gaps.iter().find(|gap| gap.contains(version)) {
            Some(gap) => Err(VersionTooOld { floor: gap.to }),
            None if version < floor => Err(VersionTooOld { floor }),
            None => Ok(first),
        }
    }

    /// What a client at `version` needs if [`WatchCache::resume_after`] fails for that version. `None` if the cache keeps no tombstones or
    /// does not know all deletions since, if the version lies in a gap or before a compaction, or if it may belong to a lost history.
    #[must_use]
    pub fn catch_up(&self, version: ResourceVersion) -> Option<CatchUp> {
        let tombstones = self.tombstones.as_ref()?;
        let snapshot = self.snapshot().filter(|_| !self.may_be_lost(version))?;
        CatchUp::new(version, tombstones, snapshot)
    }

    /// Whether the cache keeps deletions longer than its history.
    #[must_use]
    pub fn keeps_tombstones(&self) -> bool {
        self.tombstones.is_some()
    }

    /// The newest version of an earlier history that upstream no longer has; 0 if there was none.
    #[must_use]
    pub fn lost(&self) -> ResourceVersion {
        // Relaxed: it changes only before the first state is published.
        ResourceVersion(self.lost.load(Ordering::Relaxed))
    }

    fn raise_lost(&self, lost: ResourceVersion) {
        self.lost.fetch_max(lost.0, Ordering::Relaxed);
    }

    /// Whether a client may have received this version from a lost history.
    #[must_use]
    pub fn may_be_lost(&self, version: ResourceVersion) -> bool {
        version <= self.lost()
    }

    /// The state at exactly this version, if it is available without undoing events.
    #[must_use]
    pub fn state_at(&self, version: ResourceVersion) -> Option<Arc<Snapshot>> {
        let newest = self.snapshot()?;
        if newest.resource_version == version {
            return Some(newest);
        }
        (version >= floor(&newest, &self.history))
            .then(|| self.past_states.at(version))
            .flatten()
    }

    /// Starts to rewind to the state at an older version, from the nearest newer state that is available.
    ///
    /// # Errors
    /// See [`RewindError`] for the reasons why the state cannot be reached.
    pub fn rewind(&self, version: ResourceVersion) -> Result<Rewind, RewindError> {
        let newest = self.snapshot().ok_or(RewindError::Future)?;
        match self.past_states.next_after(version) {
            Some(base) => Rewind::new(&newest, &base, &self.history, version),
            None => Rewind::new(&newest, &newest, &self.history, version),
        }
    }

    /// Keeps an older state for later requests for its version, and drops the states that the history no longer reaches.
    pub fn keep(&self, state: &Arc<Snapshot>) {
        self.tracker.add_rewound(state);
        self.past_states.keep(Arc::clone(state));
        self.trim();
    }

    /// Drops what can be made again: older states and compressed blocks.
    pub fn drop_derived(&self) {
        self.past_states.clear();
        if let Some(snapshot) = self.snapshot() {
            snapshot.objects.drop_blocks();
        }
    }

    /// Bytes of memory that the objects take, and what was derived from them. Older states are not counted: most of their objects are
    /// in the history.
    #[must_use]
    pub fn objects_memory(&self) -> ChunksMemory {
        let snapshot = self.snapshot();
        snapshot.map_or_else(ChunksMemory::default, |snapshot| snapshot.objects.memory())
    }

    /// Drops older states that the history no longer reaches.
    fn trim(&self) {
        if let Some(newest) = self.snapshot() {
            self.past_states.drop_before(floor(&newest, &self.history));
        }
    }

    /// Records that upstream's state at `version` equals `snapshot`, so that clients may receive `version` before any event
    /// reaches it. From now on the versions invented for deletions are above it, and a list below it means that upstream went back.
    ///
    /// Returns false if another list has replaced the state since. Then the proof is void, and clients must not receive `version`.
    #[must_use]
    pub fn prove(&self, snapshot: &Snapshot, version: ResourceVersion) -> bool {
        let mut proven = self.proven();
        let is_current = proven.epoch == snapshot.epoch;
        if is_current && version > proven.version {
            proven.version = version;
            proven.of = snapshot.resource_version;
        }
        is_current
    }

    /// Starts an epoch, which voids proofs in progress. Returns what was proven before.
    fn begin_epoch(&self, epoch: Epoch) -> ProvenVersion {
        let mut proven = self.proven();
        proven.epoch = epoch;
        *proven
    }

    /// The newest proof, if it is of a version above `reached`.
    fn proof_beyond(&self, reached: ResourceVersion) -> Option<ProvenVersion> {
        let proven = *self.proven();
        (proven.version > reached).then_some(proven)
    }

    /// Records what another process has proven of the state at `of`.
    fn adopt_proof(&self, version: ResourceVersion, of: ResourceVersion) {
        let mut proven = self.proven();
        proven.version = version;
        proven.of = of;
    }

    fn proven(&self) -> MutexGuard<'_, ProvenVersion> {
        self.proven.lock()
    }
}

/// The error for a version that a watch cannot resume from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("version too old: the history starts at version {floor}")]
pub struct VersionTooOld {
    /// The oldest version that a watch can resume from.
    pub floor: ResourceVersion,
}

#[cfg(any(test, feature = "testing"))]
pub mod samples;

#[cfg(test)]
mod tests;
