//! The watch cache of one resource: the newest snapshot, the ring of history, and the version both have reached.
//!
//! One [`CacheWriter`] changes it; any number of readers look at it without a lock. It knows nothing of watchers: an
//! [`Observer`] is told of each batch after it can be read.

mod event;
mod objects;
mod rewind;
mod ring;
mod snapshot;
mod sync;
mod writer;

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

pub use event::Event;
pub use objects::{
    BlockFormat, Chunk, DeflateBlock, LengthForm, MapPosition, ObjectMap, SortedBuilder,
};
pub use rewind::Rewind;
pub use ring::{Lagged, Retention, Ring, RingWriter, Sequence};
pub use snapshot::{Epoch, Gap, RewindError, Snapshot, floor};
pub use writer::{ApplyOutcome, CacheWriter, Change, VersionWentBack};

use crate::resource::{ResourceKind, ResourceVersion};
use rewind::PastStates;
use sync::Published;
pub(crate) use sync::{Flag, Mutex, MutexGuard};

/// What an observer did with a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchOutcome {
    /// Events taken, from the first on: at least one if there were any.
    pub events: usize,
    /// Watchers woken.
    pub woken: usize,
}

/// Told of every batch, by the writer, after it is in the ring and in the snapshot.
pub trait Observer: Send + Sync + fmt::Debug {
    /// `events` are new; with them the resource has reached `through` (a sequence: events below it) and
    /// `version`. A batch without events is progress: a list or a bookmark.
    ///
    /// It may take only the first events if they cost much, and is then called again with the others. Until it has them all
    /// it has not reached `version`.
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        through: Sequence,
        version: ResourceVersion,
        now: Instant,
    ) -> DispatchOutcome;
}

/// The readers' side of one resource's cache.
#[derive(Debug)]
pub struct WatchCache {
    kind: ResourceKind,
    history: Arc<Ring<Arc<Event>>>,
    snapshot: Published<Option<Arc<Snapshot>>>,
    proven: Mutex<ProvenVersion>,
    past: PastStates,
    /// The newest version of a history before this one, which upstream no longer has; 0 if there was none.
    lost: ResourceVersion,
}

/// The latest version at which the state was proven to be upstream's, though no event has reached it.
#[derive(Debug, Default)]
struct ProvenVersion {
    version: ResourceVersion,
    /// Of the state that it was proven for.
    epoch: Epoch,
}

impl WatchCache {
    fn new(kind: ResourceKind, history: Arc<Ring<Arc<Event>>>, lost: ResourceVersion) -> Self {
        Self {
            lost,
            kind,
            history,
            snapshot: Published::new(Arc::new(None)),
            proven: Mutex::default(),
            past: PastStates::default(),
        }
    }

    /// What the resource is called and how its JSON is laid out.
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

    /// The newest version that readers may have been told, by an event, a list, a bookmark or a proof.
    #[must_use]
    pub fn newest_version(&self) -> ResourceVersion {
        let reached = self.snapshot().map(|snapshot| snapshot.resource_version);
        self.proven().version.max(reached.unwrap_or_default())
    }

    fn publish(&self, snapshot: Snapshot) {
        self.snapshot.publish(Arc::new(Some(Arc::new(snapshot))));
    }

    /// The first sequence that a watch from `version` has to be shown.
    ///
    /// # Errors
    /// [`VersionTooOld`] when events since `version` are no longer there, were never known, or `version` was reached in a lost history
    /// only: its bearer would wait for it in vain, and then go on with objects that are gone.
    pub fn resume_after(&self, version: ResourceVersion) -> Result<Sequence, VersionTooOld> {
        let snapshot = self.snapshot().ok_or(VersionTooOld { floor: version })?;
        let reached = snapshot.resource_version;
        if version > reached && version <= self.lost && version > self.proven().version {
            return Err(VersionTooOld { floor: reached });
        }
        // The place first, the floor after it: what is evicted between the two raises the floor. The other way round,
        // the place could lie beyond events that the floor still promised.
        let first = self
            .history
            .partition_point(|event| event.resource_version() <= version);
        let floor = floor(&snapshot, &self.history);
        // Also where one of our own events carries the version: another replica gave it to a client who has seen the true
        // history up to there, and needs what a difference does not hold.
        match snapshot.gaps.iter().find(|gap| gap.contains(version)) {
            Some(gap) => Err(VersionTooOld { floor: gap.to }),
            None if version < floor => Err(VersionTooOld { floor }),
            None => Ok(first),
        }
    }

    /// Whether a client may have this version from a history that was lost.
    #[must_use]
    pub fn may_be_lost(&self, version: ResourceVersion) -> bool {
        version <= self.lost
    }

    /// The state at exactly this version, if it needs no undoing of events.
    #[must_use]
    pub fn state_at(&self, version: ResourceVersion) -> Option<Arc<Snapshot>> {
        let newest = self.snapshot()?;
        if newest.resource_version == version {
            return Some(newest);
        }
        (version >= floor(&newest, &self.history))
            .then(|| self.past.at(version))
            .flatten()
    }

    /// The way to the state at an older version, from the nearest newer one that is at hand.
    ///
    /// # Errors
    /// See [`RewindError`].
    pub fn rewind(&self, version: ResourceVersion) -> Result<Rewind, RewindError> {
        let newest = self.snapshot().ok_or(RewindError::Future)?;
        match self.past.next_after(version) {
            Some(base) => Rewind::new(&newest, &base, &self.history, version),
            None => Rewind::new(&newest, &newest, &self.history, version),
        }
    }

    /// Keeps an older state for the next who ask for its version, and lets go of those that the history no longer reaches.
    pub fn keep(&self, state: &Arc<Snapshot>) {
        self.past.keep(Arc::clone(state));
        self.trim();
    }

    /// Lets go of older states that the history no longer reaches.
    fn trim(&self) {
        if let Some(newest) = self.snapshot() {
            self.past.drop_before(floor(&newest, &self.history));
        }
    }

    /// Records that upstream's state at `version` equals `snapshot`, so that clients may be told `version` before any event
    /// has reached it: versions made up for deletions will lie above it, and a list below it means that upstream went back.
    ///
    /// Returns false if another list has replaced the state since: the proof is void, and `version` must not be told.
    #[must_use]
    pub fn prove(&self, snapshot: &Snapshot, version: ResourceVersion) -> bool {
        let mut proven = self.proven();
        let is_current = proven.epoch == snapshot.epoch;
        if is_current {
            proven.version = proven.version.max(version);
        }
        is_current
    }

    /// Begins an epoch, which voids proofs that are under way. Returns the latest version that was proven before.
    fn begin_epoch(&self, epoch: Epoch) -> ResourceVersion {
        let mut proven = self.proven();
        proven.epoch = epoch;
        proven.version
    }

    fn proven(&self) -> MutexGuard<'_, ProvenVersion> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A version that a watch cannot resume from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events are known only after version {floor}")]
pub struct VersionTooOld {
    /// The oldest version that would do.
    pub floor: ResourceVersion,
}

#[cfg(test)]
pub(crate) mod tests;
