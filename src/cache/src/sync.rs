//! Locks of code that has loom models: parking_lot's, which do not poison, or loom's. Other code uses parking_lot directly.

#[cfg(not(feature = "loom"))]
pub use parking_lot::{Mutex, MutexGuard};

#[cfg(feature = "loom")]
pub use modelled::{Mutex, MutexGuard};

#[cfg(feature = "loom")]
mod modelled {
    pub use loom::sync::MutexGuard;

    /// loom's lock with the methods of parking_lot's.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// An open lock.
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        #[expect(clippy::unwrap_used, reason = "a model that panics has failed already")]
        /// Waits until the lock is free.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }

        /// `None` if the lock is taken.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}
