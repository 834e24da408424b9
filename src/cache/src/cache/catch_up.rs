//! The latest state of what changed since an old version: the objects that changed, and the deletions. For clients whose version the
//! history no longer reaches. Which of it a client sees is not decided here.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::ring::{Lagged, Retention, Ring, Sequence};
use super::snapshot::Snapshot;
use crate::resource::{Object, ResourceVersion};

/// Maximum number of deletions that a cache keeps. Their length is bounded as well.
const TOMBSTONES_MAX: usize = 1 << 16;

/// A deletion, kept longer than the event in the history.
#[derive(Debug)]
pub(super) struct Tombstone {
    /// The sequence of the deletion's event.
    pub(super) event: Sequence,
    /// The object's last state, with the version of the deletion.
    pub(super) object: Object,
}

impl Tombstone {
    fn version(&self) -> ResourceVersion {
        self.object.resource_version()
    }
}

/// The bounds of a cache's tombstones. Age evicts none: a deletion is as useful as the objects that changed, which stay as well.
pub(super) fn tombstone_retention(bytes_max: usize) -> Retention {
    Retention {
        segment_slots: 256,
        events_min: usize::MAX,
        events_max: TOMBSTONES_MAX,
        bytes_max,
        age_max: Duration::MAX,
    }
}

/// What a client at an older version needs: the objects of [`CatchUp::snapshot`] with a later version, and the deletions since. Together
/// and in the order of versions, they can be applied like events: after each of them the client can resume from its version.
#[derive(Debug)]
pub struct CatchUp {
    snapshot: Arc<Snapshot>,
    after: ResourceVersion,
    tombstones: Arc<Ring<Tombstone>>,
    /// The next tombstone to read.
    next: Sequence,
}

impl CatchUp {
    /// What a client at `version` needs to reach `snapshot`, the newest state; `None` if that is not known.
    pub(super) fn new(
        version: ResourceVersion,
        tombstones: &Arc<Ring<Tombstone>>,
        snapshot: Arc<Snapshot>,
    ) -> Option<Self> {
        // In this order for the reason in `WatchCache::resume_after`: an eviction in between raises the floor.
        let next = tombstones.partition_point(|tombstone| tombstone.version() <= version);
        let floor = deletions_known_since(&snapshot, tombstones).max(snapshot.forgotten);
        // Inside a gap the versions of deletions are invented: some that the client needs may have a version below its own.
        let is_known = (floor..=snapshot.resource_version).contains(&version)
            && !snapshot.gaps.iter().any(|gap| gap.contains(version));
        is_known.then(|| Self {
            snapshot,
            after: version,
            tombstones: Arc::clone(tombstones),
            next,
        })
    }

    /// The state after the catch-up.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The client's version.
    #[must_use]
    pub const fn after(&self) -> ResourceVersion {
        self.after
    }

    /// Visits the next deletions, at most `count`, in order; each is the object's last state with the version of its deletion. Returns
    /// whether there are more.
    ///
    /// # Errors
    /// [`Lagged`] if the next deletions were evicted since the catch-up began.
    pub fn read_deletions(
        &mut self,
        count: usize,
        mut visit: impl FnMut(&Object),
    ) -> Result<bool, Lagged> {
        let (end, mut left, mut is_over) = (self.snapshot.sequence, count, true);
        self.next = self.tombstones.read(self.next, |_, tombstone| {
            if tombstone.event >= end {
                return ControlFlow::Break(());
            }
            visit(&tombstone.object);
            left = left.saturating_sub(1);
            is_over = left > 0;
            match is_over {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(!is_over)
    }
}

/// The oldest version after which every deletion is known. As long as none was evicted, that is the version of the first list, or of the
/// base of a restored history.
pub(super) fn deletions_known_since(
    snapshot: &Snapshot,
    tombstones: &Ring<Tombstone>,
) -> ResourceVersion {
    let oldest = tombstones.oldest();
    if oldest == 0 {
        return snapshot.listed_at;
    }
    // If the oldest one is evicted in between, nothing older than the snapshot is known.
    let mut floor = snapshot.resource_version;
    let _ = tombstones.read(oldest, |_, tombstone| {
        // The deletion before this one was evicted and may have had the same version.
        floor = tombstone.version();
        ControlFlow::Break(())
    });
    floor
}

#[cfg(test)]
mod tests;
