//! The objects that have one value of an index, as slot numbers: a few inline, many in a shared hash set.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashSet;
use smallvec::SmallVec;

/// Up to this many slots a linear search is faster than a hash lookup.
const FEW_MAX: usize = 16;

pub(super) type ManySlots = Arc<HashSet<u32, RandomState>>;

#[derive(Debug)]
pub(super) enum PostingSet {
    Few(SmallVec<[u32; 4]>),
    /// A change copies the set if a reader holds it; it has only numbers, so that is a memory copy.
    Many(ManySlots),
}

impl Default for PostingSet {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl PostingSet {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Few(slots) => slots.is_empty(),
            Self::Many(slots) => slots.is_empty(),
        }
    }

    /// Adds a slot that is not in the set.
    pub(super) fn add(&mut self, slot: u32) {
        match self {
            Self::Few(slots) if slots.len() < FEW_MAX => slots.push(slot),
            Self::Few(slots) => {
                let many = slots.iter().copied().chain([slot]).collect();
                *self = Self::Many(Arc::new(many));
            }
            Self::Many(slots) => {
                Arc::make_mut(slots).insert(slot);
            }
        }
    }

    pub(super) fn remove(&mut self, slot: u32) {
        match self {
            Self::Few(slots) => slots.retain(|found| *found != slot),
            Self::Many(slots) => {
                Arc::make_mut(slots).remove(&slot);
                // Half of the bound, so that a set whose size is near the bound does not switch back and forth.
                if slots.len() <= FEW_MAX / 2 {
                    *self = Self::Few(slots.iter().copied().collect());
                }
            }
        }
    }
}
