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
}
