//! When upstream last showed that a watch which the gateway relies on is alive.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Three of the API server's bookmark intervals of a minute.
const SILENCE_MAX: Duration = Duration::from_secs(180);

/// Contact with upstream about one resource.
#[derive(Debug, Default)]
pub(super) struct FeedContact {
    /// `None` until all of its objects are known.
    heard_at: Mutex<Option<Instant>>,
    change: Notify,
}

impl FeedContact {
    /// Upstream has sent its state, or a change, or a bookmark.
    pub(super) fn hear(&self) {
        self.set(Some(Instant::now()));
    }

    /// Not all objects are known.
    pub(super) fn lose(&self) {
        self.set(None);
    }

    pub(super) fn is_current(&self, now: Instant) -> bool {
        let heard_at = *self.heard_at.lock();
        heard_at.is_some_and(|at| now.saturating_duration_since(at) < SILENCE_MAX)
    }

    /// Waits until objects become known, or unknown. Safe to cancel; one task may wait.
    pub(super) async fn changed(&self) {
        self.change.notified().await;
    }

    fn set(&self, heard_at: Option<Instant>) {
        let last = std::mem::replace(&mut *self.heard_at.lock(), heard_at);
        if last.is_some() != heard_at.is_some() {
            self.change.notify_one();
        }
    }
}
