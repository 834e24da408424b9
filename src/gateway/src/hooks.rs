//! Hooks through which tests put wrappers between the parts of a gateway.

use std::sync::Arc;

use crate::admission::ResidentMemory;
use crate::cache::Observer;
use crate::view::Hub;
use crate::watch::WatchRecorder;

/// What tests replace; by default nothing is.
#[derive(Clone, Copy)]
pub(super) struct Hooks {
    /// Wraps what observes a writer.
    pub(super) observer: fn(Arc<Hub>) -> Arc<dyn Observer>,
    /// Wraps the recorder of watches.
    pub(super) watch_recorder: fn(Arc<dyn WatchRecorder>) -> Arc<dyn WatchRecorder>,
    /// Reads the resident memory of the process.
    pub(super) resident: fn() -> Option<ResidentMemory>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            observer: |hub| hub,
            watch_recorder: |recorder| recorder,
            resident: ResidentMemory::read,
        }
    }
}
