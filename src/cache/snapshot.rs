//! All objects of a resource at one version, immutable.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::event::Event;
use super::objects::ObjectMap;
use super::ring::{Ring, Sequence};
use crate::resource::ResourceVersion;

/// Count of relists. History does not reach across one without its [`Gap`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Versions whose true history is unknown: a relist found the state at `to` after the watch had ended at `from`.
///
/// What happened between is known only as the difference of the two states, so resuming from a version inside is too
/// old; both ends are fine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last version before the history was lost.
    pub from: ResourceVersion,
    /// The version of the list that closed the gap.
    pub to: ResourceVersion,
}

impl Gap {
    /// True for versions strictly inside.
    #[must_use]
    pub fn contains(&self, version: ResourceVersion) -> bool {
        self.from < version && version < self.to
    }
}

/// Gaps remembered at most; history before the end of an older one is forgotten.
const GAPS_MAX: usize = 16;

/// All objects at one version, and where in the ring that is.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// How many lists the cache has been filled from.
    pub epoch: Epoch,
    /// Events with a lower sequence are in the objects, later ones are not.
    pub sequence: Sequence,
    /// The version of the newest event, list or bookmark.
    pub resource_version: ResourceVersion,
    /// The version of the first list: the floor as long as nothing was evicted.
    pub listed_at: ResourceVersion,
    /// History below this version was ordered to be forgotten, though the ring may still hold it.
    pub forgotten: ResourceVersion,
    /// The objects in list order.
    pub objects: ObjectMap,
    /// Newest last.
    pub gaps: Vec<Gap>,
}

/// Why the objects at an exact version cannot be told from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewindError {
    /// The ring no longer holds every event since.
    #[error("the history since that version is no longer kept")]
    Evicted,
    /// The version lies in a gap.
    #[error("the history around that version was never known")]
    Unknown,
    /// The version is ahead of the snapshot.
    #[error("that version is ahead of the snapshot")]
    Future,
    /// More has happened since than is undone.
    #[error("too much has happened since that version")]
    TooFar,
}

impl Snapshot {
    /// Adds a gap, if there are versions in it.
    pub(super) fn remember_gap(&mut self, from: ResourceVersion, to: ResourceVersion) {
        if from.0 + 1 >= to.0 {
            return;
        }
        self.gaps.push(Gap { from, to });
        let surplus = self.gaps.len().saturating_sub(GAPS_MAX);
        for gap in self.gaps.drain(..surplus) {
            self.forgotten = self.forgotten.max(gap.to);
        }
    }
}

/// The oldest version that a watch can resume from: every event after it is in the ring (docs/PROTOCOL.md §4.2).
#[must_use]
pub fn floor(snapshot: &Snapshot, history: &Ring<Arc<Event>>) -> ResourceVersion {
    known_since(snapshot, history).max(snapshot.forgotten)
}

/// The oldest version that the ring itself can tell of.
fn known_since(snapshot: &Snapshot, history: &Ring<Arc<Event>>) -> ResourceVersion {
    let oldest = history.oldest();
    if oldest == 0 {
        return snapshot.listed_at;
    }
    let mut floor = snapshot.resource_version;
    let read = history.read(oldest, |_, event| {
        floor = ResourceVersion(event.resource_version().0 - 1);
        ControlFlow::Break(())
    });
    // Evicted while we looked: the next call sees the new oldest event; until then nothing old resumes.
    if read.is_err() {
        snapshot.resource_version
    } else {
        floor
    }
}
