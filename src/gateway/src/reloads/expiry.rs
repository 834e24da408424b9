//! Logs the expiry of serving certificates and of the gateway's own credentials: a file that is not renewed causes no other line until
//! connections fail.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use tracing::{info, warn};

use crate::log_limit::FaultLog;
use crate::metrics::{FileKind, FileMetrics, Label};

/// How often the time is compared.
const PERIOD: Duration = Duration::from_secs(60);
/// What expires within this time should have been renewed; the alert is critical then.
const SOON_SECONDS: i64 = 24 * 3_600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpiryState {
    Soon,
    Expired,
}

/// Looks once a minute. Never returns.
pub(super) async fn log(metrics: &FileMetrics) -> Infallible {
    let mut serving = ExpiryLog::of(FileKind::ServingCertificate);
    let mut own = ExpiryLog::of(FileKind::UpstreamCredential);
    loop {
        let now = Timestamp::now().as_second();
        serving.look(metrics.serving_certificate_expiry.get(), now, SOON_SECONDS);
        // Plugins renew these in time, often after minutes.
        own.look(metrics.upstream_credential_expiry.get(), now, 0);
        tokio::time::sleep(PERIOD).await;
    }
}

struct ExpiryLog {
    file: FileKind,
    log: FaultLog<ExpiryState>,
}

impl ExpiryLog {
    fn of(file: FileKind) -> Self {
        Self {
            file,
            log: FaultLog::default(),
        }
    }

    /// `expires_at` in seconds since 1970; 0 if nothing expires.
    fn look(&mut self, expires_at: i64, now: i64, soon: i64) {
        let file = self.file.as_str();
        let state = match expires_at {
            0 => None,
            at if at <= now => Some(ExpiryState::Expired),
            at if at - now < soon => Some(ExpiryState::Soon),
            _ => None,
        };
        let Some(state) = state else {
            if self.log.end() {
                info!(file, "renewed");
            }
            return;
        };
        if !self.log.is_due(state) {
            return;
        }
        let at = Timestamp::from_second(expires_at)
            .map(|at| at.to_string())
            .unwrap_or_default();
        match state {
            ExpiryState::Soon => warn!(file, at, "expires within a day and must be renewed"),
            ExpiryState::Expired => warn!(file, at, "has expired and must be renewed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::samples::captured_log::CapturedLog;

    #[tokio::test(start_paused = true)]
    async fn expiry_is_logged_before_after_and_on_renewal() {
        let (log, _guard) = CapturedLog::start();
        let mut serving = ExpiryLog::of(FileKind::ServingCertificate);
        let hour = 3_600;
        for hours in 0..100 {
            let renewed = if hours < 90 { 50 } else { 500 };
            serving.look(renewed * hour, hours * hour, SOON_SECONDS);
            tokio::time::advance(Duration::from_secs(3_600)).await;
        }
        // Each hour a line, from a day before the expiry until the renewal.
        assert_eq!(log.lines_with("expires within a day").len(), 23);
        assert_eq!(log.lines_with("has expired").len(), 40);
        assert_eq!(log.lines_with("INFO").len(), 1);
        serving.look(0, 0, SOON_SECONDS);
        assert_eq!(log.lines_with("file=").len(), 64, "nothing expires");
    }
}
