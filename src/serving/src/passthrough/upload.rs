//! Watches how a request's body comes in: upstream may wait for it before it answers, and a client may never send the rest.

use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::metrics::ShardedCounter;
use crate::upstream::client::BodyObserver;

/// The body of a request on its way upstream. Dropped with the body.
#[derive(Debug)]
pub(super) struct Upload {
    bytes_sent: ShardedCounter,
    /// Since when upstream has been waiting for bytes from the client.
    awaited_since: Mutex<Option<Instant>>,
}

impl Upload {
    pub(super) fn new(bytes_sent: ShardedCounter) -> Self {
        Self {
            bytes_sent,
            awaited_since: Mutex::new(None),
        }
    }

    /// Completes when upstream has waited for the client for this long; never once the body has ended. Time in which upstream takes no bytes
    /// does not count.
    pub(super) async fn stalled(upload: Weak<Self>, silence_max: Duration) {
        loop {
            // Not held while waiting: the body's end would not be seen.
            let Some(awaited_since) = upload.upgrade().map(|upload| *upload.awaited_since.lock())
            else {
                return std::future::pending().await;
            };
            let now = Instant::now();
            let since = awaited_since.unwrap_or(now);
            if now.duration_since(since) >= silence_max {
                return;
            }
            sleep_until(since + silence_max).await;
        }
    }
}

impl BodyObserver for Upload {
    fn sent(&self, count: u64) {
        self.bytes_sent.add(count);
        *self.awaited_since.lock() = None;
    }

    fn awaited(&self) {
        self.awaited_since.lock().get_or_insert_with(Instant::now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metrics::Metrics;

    const SILENCE_MAX: Duration = Duration::from_secs(65);

    fn upload() -> Arc<Upload> {
        let metrics = Metrics::new().unwrap().passthrough();
        Arc::new(Upload::new(metrics.bytes_sent))
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_stalls_only_while_upstream_waits_for_the_client() {
        let upload = upload();
        let start = Instant::now();
        let stalled = tokio::spawn(Upload::stalled(Arc::downgrade(&upload), SILENCE_MAX));
        // For ten minutes something comes each minute, then upstream reads nothing for an hour.
        for _ in 0..10 {
            upload.awaited();
            tokio::time::sleep(Duration::from_mins(1)).await;
            upload.sent(1);
        }
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(!stalled.is_finished());
        upload.awaited();
        let awaited_since = start.elapsed();
        stalled.await.unwrap();
        assert!(start.elapsed() <= awaited_since + 2 * SILENCE_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_has_ended_does_not_stall() {
        let upload = upload();
        let stalled = tokio::spawn(Upload::stalled(Arc::downgrade(&upload), SILENCE_MAX));
        upload.awaited();
        drop(upload);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(!stalled.is_finished());
        stalled.abort();
    }
}
