//! The queue of one handler or stream: the initial state, then changes, which are merged per object when there are too many. Pure.
//!
//! Changes are never merged with the initial state. So a handler that receives the initial state and then all changes ends with
//! the state of the store.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::user_code::drop_each;
use crate::resource::ObjectKey;
use crate::{Cached, Notification, Overflow};

/// The capacity that an emptied queue keeps: bursts of this size do not allocate, and a thousand handlers keep at most 6 MB.
const CAPACITY_KEPT: usize = 256;

/// The state that a new handler starts with. It is read lazily, so it costs what the iterator holds, and nothing per object.
pub struct InitialState<T> {
    objects: Box<dyn Iterator<Item = Arc<Cached<T>>> + Send>,
    len: usize,
}

impl<T: Send + Sync + 'static> InitialState<T> {
    /// The objects of a snapshot, and their number. With `len` 0 the iterator is never read.
    pub fn new(len: usize, objects: impl Iterator<Item = Arc<Cached<T>>> + Send + 'static) -> Self {
        let objects = Box::new(objects);
        Self { objects, len }
    }

    /// An empty state.
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
        f.debug_struct("InitialState")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// The queue is full, and its policy is [`Overflow::Remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueOverflow;

/// Values that a queue no longer needs. Its owner drops them where no lock is held, because the destructors of objects are user code.
pub(crate) struct QueueRemains<T> {
    initial_state: Option<InitialState<T>>,
    changes: VecDeque<Notification<T>>,
}

impl<T> QueueRemains<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.initial_state.is_none() && self.changes.is_empty()
    }

    pub(super) fn drop_each(self) {
        drop_each(self.initial_state);
        drop_each(self.changes);
    }
}

impl<T> Default for QueueRemains<T> {
    fn default() -> Self {
        Self {
            initial_state: None,
            changes: VecDeque::new(),
        }
    }
}

/// The position in the queue where the initial list ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitialListEnd {
    /// The initial list is not complete yet.
    Unknown,
    /// After this many of the waiting changes.
    After(usize),
    /// The end was taken from the queue.
    Taken,
}

/// A queue of notifications. Changes are pushed at the back, and taken in order from the front.
pub(super) struct NotificationQueue<T> {
    initial_state: Option<InitialState<T>>,
    changes: VecDeque<Notification<T>>,
    /// How many of `changes` belong to the initial list, which does not count against the bound.
    initial_len: usize,
    initial_list_end: InitialListEnd,
    overflow: Overflow,
    len_max: usize,
    /// A full queue is merged only from this length on: twice the length after the last merge, so that the cost of merging is constant
    /// per change. Zero when the queue is empty.
    merge_at: usize,
    merged: u64,
    /// Notifications that were merged, or an initial state that was read to its end.
    discarded: QueueRemains<T>,
}

impl<T> NotificationQueue<T> {
    /// `len_max` is at least 1.
    pub(super) fn new(initial_state: InitialState<T>, len_max: usize, overflow: Overflow) -> Self {
        Self {
            initial_state: (initial_state.len > 0).then_some(initial_state),
            changes: VecDeque::new(),
            initial_len: 0,
            initial_list_end: InitialListEnd::Unknown,
            overflow,
            len_max,
            merge_at: 0,
            merged: 0,
            discarded: QueueRemains::default(),
        }
    }

    /// Appends a change. With `Merge` the queue holds, beside the initial list, at most `len_max` changes, or twice the number of objects
    /// that were listed or changed since it was last empty. With `Block` it may exceed `len_max` by one distributed batch.
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

    /// Marks everything pushed until now as the end of the initial list.
    pub(super) fn end_initial_list(&mut self) {
        if self.initial_list_end == InitialListEnd::Unknown {
            self.initial_list_end = InitialListEnd::After(self.changes.len());
        }
    }

    /// Moves up to `count` notifications to `out`, which must be empty. If the initial list ends among them, returns how many of them
    /// come before its end.
    pub(super) fn take(
        &mut self,
        count: usize,
        out: &mut VecDeque<Notification<T>>,
    ) -> Option<usize> {
        if let Some(initial_state) = &mut self.initial_state {
            out.extend(initial_state.objects.by_ref().take(count).map(|object| {
                Notification::Added {
                    object,
                    in_initial_list: true,
                }
            }));
            initial_state.len = initial_state.len.saturating_sub(out.len());
            if out.len() == count {
                return None;
            }
            self.discarded.initial_state = self.initial_state.take();
        }
        let initial_count = out.len();
        let taken = (count - initial_count).min(self.changes.len());
        let initial_len = &mut self.initial_len;
        out.extend(self.changes.drain(..taken).inspect(|change| {
            *initial_len -= usize::from(is_initial(change));
        }));
        if self.changes.is_empty() {
            self.merge_at = 0;
            self.changes.shrink_to(CAPACITY_KEPT);
        }
        let InitialListEnd::After(end) = self.initial_list_end else {
            return None;
        };
        if end > taken {
            self.initial_list_end = InitialListEnd::After(end - taken);
            return None;
        }
        self.initial_list_end = InitialListEnd::Taken;
        Some(initial_count + end)
    }

    #[must_use]
    pub(super) fn clear(&mut self) -> QueueRemains<T> {
        let mut discarded = self.discarded();
        // At most one of the two is set: an initial state that was read to its end is already among the discarded values.
        discarded.initial_state = self.initial_state.take().or(discarded.initial_state);
        discarded.changes.append(&mut self.changes);
        self.initial_len = 0;
        discarded
    }

    /// Takes the values that are no longer needed.
    #[must_use]
    pub(super) fn discarded(&mut self) -> QueueRemains<T> {
        mem::take(&mut self.discarded)
    }

    /// Whether nothing is left to take, not even the end of the initial list.
    pub(super) fn is_done(&self) -> bool {
        self.initial_state.is_none()
            && self.changes.is_empty()
            && !matches!(self.initial_list_end, InitialListEnd::After(_))
    }

    /// Whether the bound is reached. The initial list does not count.
    pub(super) fn is_full(&self) -> bool {
        self.changes.len() - self.initial_len >= self.len_max
    }

    /// Waiting notifications, including the initial state.
    pub(super) fn len(&self) -> usize {
        self.changes.len()
            + self
                .initial_state
                .as_ref()
                .map_or(0, |initial_state| initial_state.len)
    }

    /// Notifications that were merged into others, or cancelled out.
    pub(super) const fn merged(&self) -> u64 {
        self.merged
    }

    /// Leaves at most one change per object, at the position of the object's first change.
    fn merge(&mut self) {
        let before = self.changes.len();
        let mut kept: Vec<Option<Notification<T>>> = Vec::with_capacity(before);
        let mut index_by_key: HashMap<ObjectKey, usize, foldhash::fast::RandomState> =
            HashMap::with_capacity_and_hasher(before, foldhash::fast::RandomState::default());
        let mut initial_kept = 0;
        for (index, change) in mem::take(&mut self.changes).into_iter().enumerate() {
            if self.initial_list_end == InitialListEnd::After(index) {
                initial_kept = kept.len();
            }
            match index_by_key.entry(change.key().clone()) {
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
        self.initial_len = self
            .changes
            .iter()
            .filter(|change| is_initial(change))
            .count();
    }
}

/// Whether this notification adds an object of the initial list.
const fn is_initial<T>(change: &Notification<T>) -> bool {
    matches!(
        change,
        Notification::Added {
            in_initial_list: true,
            ..
        }
    )
}

/// Joins two consecutive changes of the same object: from the state before the first to the state after the second. `None` if the
/// object existed neither before nor after.
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
