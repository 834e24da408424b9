//! What waits for one handler: the initial state, then changes, merged per object when there are too many. Pure.
//!
//! Merging never reaches into the initial state, so a handler that is told all of that and then all changes holds what
//! the store holds.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::deferred_work::drop_each;
use crate::informer::{Cached, Notification, Overflow};
use crate::resource::ObjectKey;

/// Room that an emptied queue keeps: bursts of this size do not allocate, and a thousand handlers keep 6 MB at most.
const ROOM_KEPT: usize = 256;

/// The state that a late handler begins with: told lazily, so that it costs what the iterator holds and nothing per object.
pub struct InitialState<T> {
    objects: Box<dyn Iterator<Item = Arc<Cached<T>>> + Send>,
    len: usize,
}

impl<T: Send + Sync + 'static> InitialState<T> {
    /// The objects of a snapshot, and how many there are; of none, none are asked for.
    pub fn new(len: usize, objects: impl Iterator<Item = Arc<Cached<T>>> + Send + 'static) -> Self {
        let objects = Box::new(objects);
        Self { objects, len }
    }

    /// Nothing is there yet.
    #[must_use]
    pub fn nothing() -> Self {
        Self::new(0, std::iter::empty())
    }
}

impl<T: Send + Sync + 'static> From<Vec<Arc<Cached<T>>>> for InitialState<T> {
    fn from(objects: Vec<Arc<Cached<T>>>) -> Self {
        Self::new(objects.len(), objects.into_iter())
    }
}

impl<T> fmt::Debug for InitialState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Present")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// The queue may hold no more, and its policy is to give up then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueOverflow;

/// What a queue needs no longer: for its owner to drop where no lock is held, because an object's destructor is the user's.
pub(in crate::informer) struct QueueRemains<T> {
    present: Option<InitialState<T>>,
    changes: VecDeque<Notification<T>>,
}

impl<T> QueueRemains<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.present.is_none() && self.changes.is_empty()
    }

    pub(super) fn drop_each(self) {
        drop_each(self.present);
        drop_each(self.changes);
    }
}

impl<T> Default for QueueRemains<T> {
    fn default() -> Self {
        Self {
            present: None,
            changes: VecDeque::new(),
        }
    }
}

/// Where the initial list ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitialListEnd {
    /// Nobody knows yet.
    Ahead,
    /// Behind so many of the changes that wait.
    After(usize),
    /// Taken.
    Behind,
}

/// Takes every change at the end, gives them in order at the front.
pub(super) struct NotificationQueue<T> {
    present: Option<InitialState<T>>,
    changes: VecDeque<Notification<T>>,
    /// How many of `changes` tell the initial list, which counts against no bound.
    initial_len: usize,
    initial_list_end: InitialListEnd,
    overflow: Overflow,
    len_max: usize,
    /// Below this length a full queue is not merged: twice what was left by the last merge, so that merging costs a constant
    /// per change. Zero when the queue is empty.
    merge_at: usize,
    merged: u64,
    /// Merged away, or read to its end.
    discarded: QueueRemains<T>,
}

impl<T> NotificationQueue<T> {
    /// `len_max` is at least 1.
    pub(super) fn new(present: InitialState<T>, len_max: usize, overflow: Overflow) -> Self {
        Self {
            present: (present.len > 0).then_some(present),
            changes: VecDeque::new(),
            initial_len: 0,
            initial_list_end: InitialListEnd::Ahead,
            overflow,
            len_max,
            merge_at: 0,
            merged: 0,
            discarded: QueueRemains::default(),
        }
    }

    /// With `Merge` the queue holds at most `len_max` changes beside the initial list, or twice as many as there are objects
    /// that were listed or changed since it was last empty. With `Block` it may grow beyond by what its owner distributes at
    /// once.
    pub(super) fn push(&mut self, change: Notification<T>) -> Result<(), QueueOverflow> {
        let is_initial = is_initial(&change);
        if self.is_full() && !is_initial {
            match self.overflow {
                Overflow::Merge if self.changes.len() >= self.merge_at => self.merge(),
                Overflow::Remove => return Err(QueueOverflow),
                Overflow::Merge | Overflow::Block => {}
            }
        }
        self.initial_len += usize::from(is_initial);
        self.changes.push_back(change);
        Ok(())
    }

    /// What was pushed until now ends the initial list.
    pub(super) fn end_initial_list(&mut self) {
        if self.initial_list_end == InitialListEnd::Ahead {
            self.initial_list_end = InitialListEnd::After(self.changes.len());
        }
    }

    /// Moves up to `count` notifications to `out`, which is empty. If the initial list ends among them, the answer is behind
    /// how many of them.
    pub(super) fn take(
        &mut self,
        count: usize,
        out: &mut VecDeque<Notification<T>>,
    ) -> Option<usize> {
        if let Some(present) = &mut self.present {
            out.extend(
                present
                    .objects
                    .by_ref()
                    .take(count)
                    .map(|object| Notification::Added {
                        object,
                        in_initial_list: true,
                    }),
            );
            present.len = present.len.saturating_sub(out.len());
            if out.len() == count {
                return None;
            }
            self.discarded.present = self.present.take();
        }
        let told = out.len();
        let taken = (count - told).min(self.changes.len());
        let initial_len = &mut self.initial_len;
        out.extend(self.changes.drain(..taken).inspect(|change| {
            *initial_len -= usize::from(is_initial(change));
        }));
        if self.changes.is_empty() {
            self.merge_at = 0;
            self.changes.shrink_to(ROOM_KEPT);
        }
        let InitialListEnd::After(place) = self.initial_list_end else {
            return None;
        };
        if place > taken {
            self.initial_list_end = InitialListEnd::After(place - taken);
            return None;
        }
        self.initial_list_end = InitialListEnd::Behind;
        Some(told + place)
    }

    /// Empties the queue.
    #[must_use]
    pub(super) fn clear(&mut self) -> QueueRemains<T> {
        let mut discarded = self.discarded();
        // Else the present state was read to its end.
        discarded.present = self.present.take().or(discarded.present);
        discarded.changes.append(&mut self.changes);
        self.initial_len = 0;
        discarded
    }

    /// What was needed until now.
    #[must_use]
    pub(super) fn discarded(&mut self) -> QueueRemains<T> {
        mem::take(&mut self.discarded)
    }

    /// Whether there is nothing to take, not even the end of the initial list.
    pub(super) fn is_done(&self) -> bool {
        self.present.is_none()
            && self.changes.is_empty()
            && !matches!(self.initial_list_end, InitialListEnd::After(_))
    }

    /// Whether as many changes wait as may, the initial list aside.
    pub(super) fn is_full(&self) -> bool {
        self.changes.len() - self.initial_len >= self.len_max
    }

    /// Notifications that wait, the initial state included.
    pub(super) fn len(&self) -> usize {
        self.changes.len() + self.present.as_ref().map_or(0, |present| present.len)
    }

    /// Notifications that were merged into others, or away.
    pub(super) const fn merged(&self) -> u64 {
        self.merged
    }

    /// Leaves at most one change per object, where the object was first mentioned.
    fn merge(&mut self) {
        let before = self.changes.len();
        let mut kept: Vec<Option<Notification<T>>> = Vec::with_capacity(before);
        let mut places: HashMap<ObjectKey, usize, foldhash::fast::RandomState> =
            HashMap::with_capacity_and_hasher(before, foldhash::fast::RandomState::default());
        let mut initial_kept = 0;
        for (place, change) in mem::take(&mut self.changes).into_iter().enumerate() {
            if self.initial_list_end == InitialListEnd::After(place) {
                initial_kept = kept.len();
            }
            match places.entry(change.key().clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(kept.len());
                    kept.push(Some(change));
                }
                Entry::Occupied(entry) => {
                    let slot = &mut kept[*entry.get()];
                    let first = slot.take();
                    *slot = first.as_ref().and_then(|first| join(first, &change));
                    self.discarded.changes.extend(first);
                    self.discarded.changes.push_back(change);
                    if slot.is_none() {
                        entry.remove();
                    }
                }
            }
        }
        if self.initial_list_end == InitialListEnd::After(before) {
            initial_kept = kept.len();
        }
        if matches!(self.initial_list_end, InitialListEnd::After(_)) {
            let left = kept[..initial_kept].iter().flatten().count();
            self.initial_list_end = InitialListEnd::After(left);
        }
        self.changes.extend(kept.into_iter().flatten());
        self.merged += (before - self.changes.len()) as u64;
        self.merge_at = 2 * self.changes.len();
        let initial = self.changes.iter().filter(|change| is_initial(change));
        self.initial_len = initial.count();
    }
}

/// Whether this tells of an object of the initial list.
const fn is_initial<T>(change: &Notification<T>) -> bool {
    matches!(
        change,
        Notification::Added {
            in_initial_list: true,
            ..
        }
    )
}

/// One change for two of the same object, the first before the second: from what was before the first to what is after the
/// second. None if it was not there before and is not after.
fn join<T>(first: &Notification<T>, second: &Notification<T>) -> Option<Notification<T>> {
    let before = match first {
        Notification::Added { .. } => None,
        Notification::Updated { old, .. } | Notification::Deleted { old, .. } => Some(old),
    };
    match (before, second) {
        (None, Notification::Deleted { .. }) => None,
        (
            Some(old),
            Notification::Deleted {
                object,
                final_state_known,
                ..
            },
        ) => Some(Notification::Deleted {
            old: Arc::clone(old),
            object: Arc::clone(object),
            final_state_known: *final_state_known,
        }),
        (None, Notification::Added { object: new, .. } | Notification::Updated { new, .. }) => {
            Some(Notification::Added {
                object: Arc::clone(new),
                in_initial_list: is_initial(first),
            })
        }
        (
            Some(old),
            Notification::Added { object: new, .. } | Notification::Updated { new, .. },
        ) => Some(Notification::Updated {
            old: Arc::clone(old),
            new: Arc::clone(new),
        }),
    }
}

#[cfg(test)]
mod tests;
