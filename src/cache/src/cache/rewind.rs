//! Older states, made from a newer state by undoing events, and the few of them that are kept. When to rewind and for which request is
//! not decided here.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::event::Event;
use super::ring::Ring;
use super::snapshot::{RewindError, Snapshot, floor};
use crate::resource::ResourceVersion;

/// Maximum number of events to undo for one state: some tens of milliseconds of work.
const UNDONE_MAX: usize = 20_000;
/// Maximum number of older states kept for one resource. All are within its history, so they share objects with it.
const KEPT_MAX: usize = 8;

/// A rewind to an older state. Its cost is proportional to the number of events since then, and it can be done in steps.
#[derive(Debug)]
pub struct Rewind {
    state: Snapshot,
    /// The events to undo, oldest first. They are undone from the back.
    events: Vec<Arc<Event>>,
}

impl Rewind {
    /// A rewind from `base`, a state at `version` or later, to `version`. The gaps are those of `newest`.
    pub(super) fn new(
        newest: &Snapshot,
        base: &Snapshot,
        history: &Ring<Arc<Event>>,
        version: ResourceVersion,
    ) -> Result<Self, RewindError> {
        if version > base.resource_version {
            return Err(RewindError::Future);
        }
        if newest.gaps.iter().any(|gap| gap.contains(version)) {
            return Err(RewindError::Unknown);
        }
        // Find the sequence before the floor, for the reason in `WatchCache::resume_after`: an eviction in between raises the floor, and
        // `version` is refused.
        let first = history.partition_point(|event| event.resource_version() <= version);
        if version < floor(newest, history) {
            return Err(RewindError::Evicted);
        }
        let mut events = Vec::new();
        history
            .read(first, |sequence, event| {
                if sequence >= base.sequence || events.len() > UNDONE_MAX {
                    return ControlFlow::Break(());
                }
                events.push(Arc::clone(event));
                ControlFlow::Continue(())
            })
            .map_err(|_| RewindError::Evicted)?;
        if events.len() > UNDONE_MAX {
            return Err(RewindError::TooFar);
        }
        let state = Snapshot {
            resource_version: version,
            sequence: first.min(base.sequence),
            ..base.clone()
        };
        Ok(Self { state, events })
    }

    /// Undoes at most `count` events; returns whether any remain.
    pub fn step(&mut self, count: usize) -> bool {
        let remaining = self.events.len().saturating_sub(count);
        let objects = &mut self.state.objects;
        for event in self.events.drain(remaining..).rev() {
            match event.previous() {
                Some(previous) => objects.insert(previous.clone()),
                None => objects.remove(event.object().key()),
            };
        }
        remaining > 0
    }

    /// Undoes the remaining events and returns the older state.
    #[must_use]
    pub fn finish(mut self) -> Snapshot {
        self.step(usize::MAX);
        self.state
    }
}

/// The older states that were requested recently.
#[derive(Debug, Default)]
pub(super) struct PastStates(Mutex<Vec<Arc<Snapshot>>>);

impl PastStates {
    /// The states, least recently used first.
    fn states(&self) -> MutexGuard<'_, Vec<Arc<Snapshot>>> {
        self.0.lock()
    }

    /// The state at this version, if it is kept, which becomes the most recently used one.
    pub(super) fn at(&self, version: ResourceVersion) -> Option<Arc<Snapshot>> {
        let mut states = self.states();
        let found = states
            .iter()
            .position(|state| state.resource_version == version)?;
        let state = states.remove(found);
        states.push(Arc::clone(&state));
        Some(state)
    }

    /// The oldest kept state that is at `version` or later: the fewest events have to be undone from it.
    pub(super) fn next_after(&self, version: ResourceVersion) -> Option<Arc<Snapshot>> {
        let states = self.states();
        let later = states
            .iter()
            .filter(|state| state.resource_version >= version);
        later.min_by_key(|state| state.resource_version).cloned()
    }

    /// Keeps a state, in place of one at the same version or else, if the list is full, of the least recently used one.
    pub(super) fn keep(&self, state: Arc<Snapshot>) {
        let mut states = self.states();
        states.retain(|kept| kept.resource_version != state.resource_version);
        if states.len() == KEPT_MAX {
            states.remove(0);
        }
        states.push(state);
    }

    pub(super) fn clear(&self) {
        self.states().clear();
    }

    /// Drops states below the floor of the history. Nothing else would hold the objects that only they contain.
    pub(super) fn drop_before(&self, floor: ResourceVersion) {
        self.states().retain(|kept| kept.resource_version >= floor);
    }
}

#[cfg(test)]
mod tests;
