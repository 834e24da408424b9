//! All objects of a resource at one version, immutable.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::event::Event;
use super::objects::ObjectMap;
use super::ring::{Ring, Sequence};
use crate::resource::ResourceVersion;

/// The number of lists that a cache was filled from. History does not reach across a relist except for its [`Gap`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Versions with an unknown history: the watch ended at `from`, and a relist found the state at `to`.
///
/// Only the difference of the two states is known, so a version inside the gap is too old to resume from. Both ends
/// are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last version before the history was lost.
    pub from: ResourceVersion,
    /// The version of the list that closed the gap.
    pub to: ResourceVersion,
}

impl Gap {
    /// Whether `version` is strictly inside the gap.
    #[must_use]
    pub fn contains(&self, version: ResourceVersion) -> bool {
        self.from < version && version < self.to
    }
}

/// Maximum number of gaps remembered. The history before the end of an older gap is forgotten.
pub const GAPS_MAX: usize = 16;

/// All objects at one version, and the corresponding position in the ring.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The number of lists that the cache has been filled from.
    pub epoch: Epoch,
    /// The objects contain the events with a lower sequence, and no others.
    pub sequence: Sequence,
    /// The version of the newest event, list or bookmark.
    pub resource_version: ResourceVersion,
    /// The version of the first list: the floor as long as no event was evicted.
    pub listed_at: ResourceVersion,
    /// History below this version must not be used, even if the ring still holds it.
    pub forgotten: ResourceVersion,
    /// The objects, in list order.
    pub objects: ObjectMap,
    /// The known gaps, newest last.
    pub gaps: Vec<Gap>,
}

/// Why the state at an exact version cannot be derived from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewindError {
    /// The ring no longer holds every event since that version.
    #[error("the history since that version is no longer kept")]
    Evicted,
    /// The version lies in a gap.
    #[error("the history around that version was never known")]
    Unknown,
    /// The version is newer than the snapshot.
    #[error("that version is ahead of the snapshot")]
    Future,
    /// More events have happened since that version than may be undone.
    #[error("too many events since that version")]
    TooFar,
}

impl Snapshot {
    /// Adds the gap between the two versions, if there is a version strictly between them. Versions below the `floor` are too old without
    /// their gaps.
    pub(super) fn remember_gap(&mut self, gap: Gap, floor: ResourceVersion) {
        if gap.from.0.saturating_add(1) >= gap.to.0 {
            return;
        }
        self.gaps.retain(|gap| gap.to > floor);
        self.gaps.push(gap);
        let surplus = self.gaps.len().saturating_sub(GAPS_MAX);
        for gap in self.gaps.drain(..surplus) {
            self.forgotten = self.forgotten.max(gap.to);
        }
    }
}

/// The oldest version that a watch can resume from: the ring holds every event after it (docs/PROTOCOL.md §4.2).
#[must_use]
pub fn floor(snapshot: &Snapshot, history: &Ring<Arc<Event>>) -> ResourceVersion {
    known_since(snapshot, history).max(snapshot.forgotten)
}

/// The oldest version after which the ring holds every event, forgotten ones included.
#[must_use]
pub fn known_since(snapshot: &Snapshot, history: &Ring<Arc<Event>>) -> ResourceVersion {
    let oldest = history.oldest();
    if oldest == 0 {
        return snapshot.listed_at;
    }
    let mut floor = snapshot.resource_version;
    let read = history.read(oldest, |_, event| {
        floor = event.floor();
        ControlFlow::Break(())
    });
    // The event was evicted in between. Use the newest version, so that nothing older resumes; the next call sees the new
    // oldest event.
    if read.is_err() {
        snapshot.resource_version
    } else {
        floor
    }
}
