//! The cells and atomics of the cache, from std or from loom. Nothing else in the cache names them.
//!
//! Under `--cfg fanout_loom` the directory and snapshot cells become a mutex, which loom can follow; arc-swap, which
//! stands there otherwise, has its own tests. What the models check is our part: the order of slot and head.

#[cfg(not(fanout_loom))]
use std::sync::atomic::AtomicBool;
#[cfg(not(fanout_loom))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(fanout_loom)]
use loom::sync::atomic::AtomicBool;
#[cfg(fanout_loom)]
pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

/// Locks around which there are models; others are named where they are.
#[cfg(not(fanout_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(fanout_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// Set once and for good. Whoever finds it set sees all that was written before.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) fn set(&self) {
        // Release: pairs with the Acquire in `is_set`.
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(not(fanout_loom))]
mod cells {
    use std::sync::{Arc, OnceLock};

    use arc_swap::ArcSwap;

    /// A place that is filled once and read without waiting.
    #[derive(Debug)]
    pub(in crate::cache) struct OnceSlot<T>(OnceLock<T>);

    impl<T> OnceSlot<T> {
        pub(in crate::cache) fn empty() -> Self {
            Self(OnceLock::new())
        }

        /// Fills the slot. The ring's single writer fills each slot once.
        pub(in crate::cache) fn fill(&self, value: T) {
            let filled = self.0.set(value);
            debug_assert!(filled.is_ok(), "a slot is filled once");
        }

        pub(in crate::cache) fn with<R>(&self, read: impl FnOnce(Option<&T>) -> R) -> R {
            read(self.0.get())
        }
    }

    /// A shared value that one writer replaces; readers never wait.
    #[derive(Debug)]
    pub(in crate::cache) struct Published<T>(ArcSwap<T>);

    impl<T> Published<T> {
        pub(in crate::cache) fn new(value: Arc<T>) -> Self {
            Self(ArcSwap::new(value))
        }

        pub(in crate::cache) fn publish(&self, value: Arc<T>) {
            self.0.store(value);
        }

        /// Reads in place, without touching the reference count.
        pub(in crate::cache) fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
            read(&self.0.load())
        }
    }
}

#[cfg(fanout_loom)]
mod loom_cells;

#[cfg(not(fanout_loom))]
pub(super) use cells::{OnceSlot, Published};
#[cfg(fanout_loom)]
pub(super) use loom_cells::{OnceSlot, Published};
