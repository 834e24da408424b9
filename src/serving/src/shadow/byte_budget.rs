//! The bytes that all comparisons together may hold.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of bytes that can be held at a time. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ByteBudget(Arc<Semaphore>);

/// Bytes of the budget, until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes(OwnedSemaphorePermit);

impl ByteBudget {
    pub(super) fn new(len: usize) -> Self {
        Self(Arc::new(Semaphore::new(len)))
    }

    /// Holds so many bytes; `None` if there is no room for them now.
    pub(crate) fn hold(&self, len: usize) -> Option<HeldBytes> {
        let len = u32::try_from(len).ok()?;
        let permit = Arc::clone(&self.0).try_acquire_many_owned(len);
        permit.ok().map(HeldBytes)
    }
}

impl HeldBytes {
    pub(crate) fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    /// Holds so many bytes instead; `None` if there is no room for them now.
    pub(crate) fn resize(&mut self, len: usize) -> Option<()> {
        let held = self.0.num_permits();
        match len.checked_sub(held) {
            Some(0) => {}
            Some(more) => {
                let more = u32::try_from(more).ok()?;
                let permit = Arc::clone(self.0.semaphore()).try_acquire_many_owned(more);
                self.0.merge(permit.ok()?);
            }
            None => drop(self.0.split(held - len)),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_grows_only_into_free_room_and_is_given_back() {
        let budget = ByteBudget::new(10);
        let mut held = budget.hold(0).unwrap();
        held.resize(8).unwrap();
        assert!(budget.hold(3).is_none());
        assert!(held.resize(11).is_none());
        held.resize(2).unwrap();
        let rest = budget.hold(8).unwrap();
        drop((held, rest));
        assert!(budget.hold(10).is_some());
    }
}
