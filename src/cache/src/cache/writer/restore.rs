//! Fills an empty cache with the state that another process held.

use std::time::Instant;

use super::{CacheWriter, Change};
use crate::cache::objects::ObjectMap;
use crate::cache::snapshot::{Epoch, Gap};
use crate::resource::ResourceVersion;

/// An event of the history that is restored.
#[derive(Debug)]
pub struct PastEvent {
    /// What changed.
    pub change: Change,
    /// When the event arrived in the process that held it.
    pub arrived_at: Instant,
}

/// The state of a cache: the objects at the start of its history, and the history.
#[derive(Debug)]
pub struct PriorState {
    /// The objects before the first event.
    pub base: ObjectMap,
    /// The version of the base: `events` has every change after it, except in the gaps.
    pub base_version: ResourceVersion,
    /// History below this version must not be used.
    pub forgotten: ResourceVersion,
    /// The state was proven to be upstream's at this version, if it is above the newest one.
    pub proven: ResourceVersion,
    /// The newest version of an earlier history that upstream no longer has; 0 if there was none.
    pub lost: ResourceVersion,
    /// Versions between which the history is not known, newest last.
    pub gaps: Vec<Gap>,
    /// The history, in the order of versions.
    pub events: Vec<PastEvent>,
    /// The version that the resource has reached with the last event; not below that of any event.
    pub version: ResourceVersion,
}

/// What of a state is not restored yet.
#[derive(Debug)]
pub struct RestoredHistory {
    events: std::vec::IntoIter<PastEvent>,
    version: ResourceVersion,
}

impl CacheWriter {
    /// Publishes a restored state as the first state of this cache. [`CacheWriter::dispatch`] must follow.
    ///
    /// Clients can resume from every version from which they could in the process that held the state, as far as this cache's retention
    /// reaches. The next list continues the history, as after a watch that was lost.
    pub fn publish_restored(&mut self, restored: PriorState) {
        let mut rest = self.begin_restored(restored);
        self.continue_restored(&mut rest, usize::MAX);
    }

    /// Like [`CacheWriter::publish_restored`], which [`CacheWriter::continue_restored`] completes.
    pub fn begin_restored(&mut self, restored: PriorState) -> RestoredHistory {
        debug_assert_eq!(self.state.epoch, Epoch(0), "the cache is empty");
        self.state.epoch = Epoch(1);
        self.cache.begin_epoch(Epoch(1));
        // Before the state is published: who finds the state finds this, too.
        self.cache.raise_lost(restored.lost);
        self.cache.adopt_proof(restored.proven, restored.version);
        self.objects_len = restored.base.frames_len();
        self.state.objects = restored.base;
        self.state.listed_at = restored.base_version;
        self.state.resource_version = restored.base_version;
        self.state.forgotten = restored.forgotten;
        self.state.gaps = restored.gaps;
        RestoredHistory {
            events: restored.events.into_iter(),
            version: restored.version,
        }
    }

    /// Appends so many events of the history, and publishes the state with the last of them; returns whether more are left.
    pub fn continue_restored(&mut self, rest: &mut RestoredHistory, count: usize) -> bool {
        for PastEvent { change, arrived_at } in rest.events.by_ref().take(count) {
            self.append(change, arrived_at);
        }
        let is_more_left = rest.events.len() > 0;
        if !is_more_left {
            self.publish(rest.version, Vec::new());
        }
        is_more_left
    }
}
