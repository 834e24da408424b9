//! Where a test puts something between the parts of a gateway.

use std::sync::Arc;

use crate::cache::Observer;
use crate::view::Hub;
use crate::watch::WatchRecorder;

/// What stands between the parts of each cached resource; usually nothing.
#[derive(Clone, Copy)]
pub(super) struct Hooks {
    /// Between a writer and its views.
    pub(super) observer: fn(Arc<Hub>) -> Arc<dyn Observer>,
    /// Between watches and their metrics.
    pub(super) tally: fn(Arc<dyn WatchRecorder>) -> Arc<dyn WatchRecorder>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            observer: |hub| hub,
            tally: |tally| tally,
        }
    }
}
