//! The cells of the cache, built from types that loom can model.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(in crate::cache) struct OnceSlot<T> {
    full: AtomicBool,
    value: Mutex<Option<Arc<T>>>,
}

impl<T> OnceSlot<T> {
    pub(in crate::cache) fn empty() -> Self {
        Self {
            full: AtomicBool::new(false),
            value: Mutex::new(None),
        }
    }

    pub(in crate::cache) fn fill(&self, value: T) {
        *self
            .value
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Arc::new(value));
        // Release: pairs with the Acquire in `with`, as in `OnceLock`.
        self.full.store(true, Ordering::Release);
    }

    pub(in crate::cache) fn with<R>(&self, read: impl FnOnce(Option<&T>) -> R) -> R {
        // Acquire: pairs with the Release in `fill`. The flag is checked first, because a lock always sees the latest value:
        // only the flag can show an empty slot for a head that was published too early.
        if !self.full.load(Ordering::Acquire) {
            return read(None);
        }
        let value = self
            .value
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        read(value.as_deref())
    }
}

#[derive(Debug)]
pub(in crate::cache) struct Published<T>(Mutex<Arc<T>>);

impl<T> Published<T> {
    pub(in crate::cache) fn new(value: Arc<T>) -> Self {
        Self(Mutex::new(value))
    }

    pub(in crate::cache) fn publish(&self, value: Arc<T>) {
        *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = value;
    }

    pub(in crate::cache) fn load(&self) -> Arc<T> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    pub(in crate::cache) fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.load())
    }
}
