//! Which objects have one value of an index: slot numbers, a few inline, many in a shared set.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashSet;
use smallvec::SmallVec;

/// More than so many are found faster by hash than one by one.
const FEW_MAX: usize = 16;

pub(super) type ManySlots = Arc<HashSet<u32, RandomState>>;

#[derive(Debug)]
pub(super) enum PostingSet {
    Few(SmallVec<[u32; 4]>),
    /// Copied by a change while a reader walks it: of numbers only, so a memory copy.
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

    /// Adds a slot that is not among them.
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
                // Half of the bound, so that a value at the bound does not go to and fro.
                if slots.len() <= FEW_MAX / 2 {
                    *self = Self::Few(slots.iter().copied().collect());
                }
            }
        }
    }
}
