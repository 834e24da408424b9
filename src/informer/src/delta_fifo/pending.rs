//! The data under the queue's lock: deltas by object, the order of the objects, and the progress of the initial population.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use smallvec::{SmallVec, smallvec};

use super::delta::{Delta, DeltaKind, DeltaSubject};
use super::known_objects::KnownObjects;
use crate::resource::ObjectKey;

/// The capacity that an empty queue keeps, in objects: enough for bursts of a usual watch. Lists need more; that is freed after them.
const IDLE_CAPACITY: usize = 1_024;

/// The deltas of one object, oldest first. Usually there is only one.
type Deltas<V> = SmallVec<[Delta<V>; 1]>;

pub(super) struct PendingDeltas<V> {
    /// Each object has at least one delta.
    deltas: HashMap<ObjectKey, Deltas<V>, RandomState>,
    /// The keys of `deltas`, each once, in the order in which they were first queued.
    order: VecDeque<ObjectKey>,
    delta_count: usize,
    /// How many of the deltas belong to a resync.
    sync_count: usize,
    /// How many objects of the initial population still wait; `None` before the first change or replacement.
    initial: Option<usize>,
    closed: bool,
}

impl<V> Default for PendingDeltas<V> {
    fn default() -> Self {
        Self {
            deltas: HashMap::default(),
            order: VecDeque::new(),
            delta_count: 0,
            sync_count: 0,
            initial: None,
            closed: false,
        }
    }
}

impl<V> PendingDeltas<V> {
    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.deltas.contains_key(key)
    }

    /// Queues a delta. Two deletions in a row become one; the superfluous one is returned, for the caller to drop without the lock.
    #[must_use]
    pub(super) fn append(&mut self, key: ObjectKey, delta: Delta<V>) -> Option<Delta<V>> {
        self.sync_count += usize::from(delta.kind == DeltaKind::Sync);
        match self.deltas.entry(key) {
            Entry::Vacant(entry) => {
                self.order.push_back(entry.key().clone());
                entry.insert(smallvec![delta]);
            }
            Entry::Occupied(mut entry) => {
                let deltas = entry.get_mut();
                match deltas.last_mut() {
                    Some(last) if last.repeats(&delta) => {
                        // Keep the deletion that has the final state.
                        return Some(if last.is_final_state_unknown() {
                            std::mem::replace(last, delta)
                        } else {
                            delta
                        });
                    }
                    _ => deltas.push(delta),
                }
            }
        }
        self.delta_count += 1;
        None
    }

    pub(super) fn replace(
        &mut self,
        objects: Vec<(ObjectKey, Arc<V>)>,
        known: &dyn KnownObjects<V>,
        is_kept: impl Fn(&V) -> bool,
    ) {
        let mut listed: HashSet<ObjectKey, RandomState> =
            HashSet::with_capacity_and_hasher(objects.len(), RandomState::default());
        let mut missing: Vec<ObjectKey> = self.order.iter().cloned().collect();
        for (key, object) in objects {
            listed.insert(key.clone());
            let repeated = self.append(key, Delta::new(DeltaKind::Replaced, object));
            debug_assert!(
                repeated.is_none(),
                "only deletions are dropped as repetitions"
            );
        }
        missing.retain(|key| !listed.contains(key));
        let is_kept = |last: &Option<Arc<V>>| last.as_deref().is_some_and(&is_kept);
        let mut missing_count = 0;
        for key in missing {
            // A queued state is newer than the known state.
            let last = self.newest(&key);
            if !is_kept(&last) {
                self.delete_unseen(key, last);
                missing_count += 1;
            }
        }
        for key in known.keys() {
            if !listed.contains(&key) && !self.contains(&key) {
                let last = known.object(&key);
                if !is_kept(&last) {
                    self.delete_unseen(key, last);
                    missing_count += 1;
                }
            }
        }
        self.set_initial_population(listed.len() + missing_count);
    }

    pub(super) fn delete_where(
        &mut self,
        known: &dyn KnownObjects<V>,
        likely_key: &ObjectKey,
        is_gone: impl Fn(&V) -> bool,
    ) {
        let likely = match self.contains(likely_key) {
            true => self.newest(likely_key),
            false => known.object(likely_key),
        };
        if likely.as_deref().is_some_and(&is_gone) {
            return self.delete_unseen(likely_key.clone(), likely);
        }
        let queued: Vec<ObjectKey> = self.order.iter().cloned().collect();
        let known_only = known.keys().into_iter().filter(|key| !self.contains(key));
        let known_only: Vec<ObjectKey> = known_only.collect();
        let gone: Vec<_> = queued
            .into_iter()
            .map(|key| (self.newest(&key), key))
            .chain(known_only.into_iter().map(|key| (known.object(&key), key)))
            .filter(|(last, _)| last.as_deref().is_some_and(&is_gone))
            .collect();
        for (last, key) in gone {
            self.delete_unseen(key, last);
        }
    }

    /// The newest queued state of an object.
    fn newest(&self, key: &ObjectKey) -> Option<Arc<V>> {
        let newest = self.deltas.get(key)?.last()?;
        newest.subject.object().cloned()
    }

    /// Queues the deletion of an object whose final state is not known.
    fn delete_unseen(&mut self, key: ObjectKey, last: Option<Arc<V>>) {
        let subject = DeltaSubject::FinalStateUnknown {
            key: key.clone(),
            last,
        };
        let kind = DeltaKind::Deleted;
        // May be dropped under the lock: a repeated deletion shares its object with a queued delta or a known object.
        drop(self.append(key, Delta { kind, subject }));
    }

    pub(super) fn resync(&mut self, known: &dyn KnownObjects<V>) {
        for key in known.keys() {
            if self.contains(&key) {
                continue;
            }
            if let Some(object) = known.object(&key) {
                let repeated = self.append(key, Delta::new(DeltaKind::Sync, object));
                debug_assert!(
                    repeated.is_none(),
                    "only deletions are dropped as repetitions"
                );
            }
        }
    }

    /// Sets the size of the initial population, in objects, unless it is already set.
    pub(super) fn set_initial_population(&mut self, count: usize) {
        self.initial.get_or_insert(count);
    }

    pub(super) fn has_synced(&self) -> bool {
        self.initial == Some(0)
    }

    pub(super) fn pop(&mut self) -> Option<(ObjectKey, Deltas<V>)> {
        let key = self.order.pop_front()?;
        let deltas = self.deltas.remove(&key).unwrap_or_default();
        debug_assert!(!deltas.is_empty(), "each key in `order` has deltas");
        self.delta_count -= deltas.len();
        self.sync_count -= deltas
            .iter()
            .filter(|delta| delta.kind == DeltaKind::Sync)
            .count();
        // The initial population was queued first, so it is popped first.
        if let Some(initial) = &mut self.initial {
            *initial = initial.saturating_sub(1);
        }
        if self.order.is_empty() {
            self.order.shrink_to(IDLE_CAPACITY);
            self.deltas.shrink_to(IDLE_CAPACITY);
        }
        Some((key, deltas))
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn delta_count(&self) -> usize {
        self.delta_count
    }

    pub(super) fn is_resyncing(&self) -> bool {
        self.sync_count > 0
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}
