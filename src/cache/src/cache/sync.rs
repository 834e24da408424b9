//! The cells and atomics of the cache, from std or from loom. No other module of the cache imports them directly.
//!
//! Under the feature `loom` the cells of directory and snapshot are a mutex, which loom can model. Otherwise they are arc-swap,
//! which has its own tests. The models check this crate's part: that a slot is filled before the head is moved past it.

#[cfg(not(feature = "loom"))]
use std::sync::atomic::AtomicBool;
#[cfg(not(feature = "loom"))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "loom")]
use loom::sync::atomic::AtomicBool;
#[cfg(feature = "loom")]
pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

/// A flag that is set once and never cleared. A thread that finds it set sees everything that was written before it was set.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) fn set(&self) {
        // Release: pairs with the Acquire in `is_set`.
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        // Acquire: pairs with the Release in `set`.
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(not(feature = "loom"))]
mod cells {
    use std::sync::{Arc, OnceLock};

    use arc_swap::ArcSwap;

    /// A slot that is filled once and read without waiting.
    #[derive(Debug)]
    pub(in crate::cache) struct OnceSlot<T>(OnceLock<T>);

    impl<T> OnceSlot<T> {
        pub(in crate::cache) fn empty() -> Self {
            Self(OnceLock::new())
        }

        /// Fills the slot. The ring's single writer calls this once for each slot.
        pub(in crate::cache) fn fill(&self, value: T) {
            let filled = self.0.set(value);
            debug_assert!(filled.is_ok(), "a slot was filled twice");
        }

        pub(in crate::cache) fn with<R>(&self, read: impl FnOnce(Option<&T>) -> R) -> R {
            read(self.0.get())
        }
    }

    /// A shared value that one writer replaces. Readers never wait.
    #[derive(Debug)]
    pub(in crate::cache) struct Published<T>(ArcSwap<T>);

    impl<T> Published<T> {
        pub(in crate::cache) fn new(value: Arc<T>) -> Self {
            Self(ArcSwap::new(value))
        }

        pub(in crate::cache) fn publish(&self, value: Arc<T>) {
            self.0.store(value);
        }

        /// Reads the value in place, without changing its reference count.
        pub(in crate::cache) fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
            read(&self.0.load())
        }
    }
}

#[cfg(feature = "loom")]
mod loom_cells;

#[cfg(not(feature = "loom"))]
pub(super) use cells::{OnceSlot, Published};
#[cfg(feature = "loom")]
pub(super) use loom_cells::{OnceSlot, Published};
