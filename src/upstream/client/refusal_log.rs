//! Limits the log lines about credentials of the gateway that the server refuses.

use std::time::Duration;

use tokio::time::Instant;

/// A refusal that lasts is logged again after this time, so that the log of the last hour shows it.
const LOG_INTERVAL: Duration = Duration::from_secs(3_000);

/// When a refusal was logged; `None` while there is none.
#[derive(Default)]
pub(super) struct RefusalLog(parking_lot::Mutex<Option<Instant>>);

impl RefusalLog {
    /// Whether a line about a refusal is due.
    pub(super) fn is_due(&self) -> bool {
        let mut logged_at = self.0.lock();
        let is_due = logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL);
        if is_due {
            *logged_at = Some(Instant::now());
        }
        is_due
    }

    /// The server has accepted the credentials.
    pub(super) fn end(&self) {
        if self.0.lock().take().is_some() {
            tracing::info!("the API server accepts the gateway's credentials again");
        }
    }
}
