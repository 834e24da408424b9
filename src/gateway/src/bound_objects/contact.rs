//! When upstream last showed that what the gateway relies on is alive, and whether all objects were listed since somebody looked.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Three of the API server's bookmark intervals of a minute.
const SILENCE_MAX: Duration = Duration::from_secs(180);

/// Contact with upstream about one resource.
#[derive(Debug, Default)]
pub(super) struct FeedContact {
    state: Mutex<LastContact>,
    change: Notify,
}

#[derive(Debug, Default)]
struct LastContact {
    /// `None` until all objects are known.
    heard_at: Option<Instant>,
    is_listed: bool,
}

impl FeedContact {
    /// Upstream sent its state, or a change, or a bookmark at this time.
    pub(super) fn hear(&self, at: Instant) {
        self.set(Some(at));
    }

    /// Not all objects are known.
    pub(super) fn lose(&self) {
        self.set(None);
    }

    /// All objects were listed.
    pub(super) fn list(&self) {
        self.state.lock().is_listed = true;
        self.change.notify_one();
    }

    /// Whether all objects were listed since the last call.
    pub(super) fn take_listed(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_listed)
    }

    pub(super) fn is_current(&self, now: Instant) -> bool {
        let heard_at = self.state.lock().heard_at;
        heard_at.is_some_and(|at| now.saturating_duration_since(at) < SILENCE_MAX)
    }

    /// Waits until objects become known, or unknown, or are listed. Safe to cancel; one task may wait.
    pub(super) async fn changed(&self) {
        self.change.notified().await;
    }

    fn set(&self, heard_at: Option<Instant>) {
        let last = std::mem::replace(&mut self.state.lock().heard_at, heard_at);
        if last.is_some() != heard_at.is_some() {
            self.change.notify_one();
        }
    }
}
