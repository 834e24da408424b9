//! Logs that connections cannot be accepted. While file descriptors are short every attempt fails, so one line covers many failures.

use std::io;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

/// At most one log line in this time.
const PERIOD: Duration = Duration::from_secs(10);

/// Counts failed accepts between two log lines.
#[derive(Debug, Default)]
pub(super) struct AcceptErrors {
    logged_at: Option<Instant>,
    /// Failures since the last log line.
    unlogged: u64,
}

impl AcceptErrors {
    /// Records a failed accept, and logs it if a line is due.
    pub(super) fn note(&mut self, error: &io::Error, now: Instant) {
        if let Some(count) = self.due(now) {
            warn!(%error, count, "connections could not be accepted");
        }
    }

    /// The number of failures to log now, if a line is due.
    fn due(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        let is_recent = |at| now.saturating_duration_since(at) < PERIOD;
        if self.logged_at.is_some_and(is_recent) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_together() {
        let mut errors = AcceptErrors::default();
        let start = Instant::now();
        assert_eq!(errors.due(start), Some(1));
        for _ in 0..200 {
            assert_eq!(errors.due(start + PERIOD / 2), None);
        }
        assert_eq!(errors.due(start + PERIOD), Some(201));
    }
}
