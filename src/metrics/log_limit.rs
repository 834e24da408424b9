//! A limit of log lines about something that may happen any number of times a second: one line covers many.

use std::time::Duration;

use tokio::time::Instant;

/// At most one log line in this time.
const PERIOD: Duration = Duration::from_secs(10);

/// Counts what happens between two log lines.
#[derive(Debug, Default)]
pub struct LogLimit {
    logged_at: Option<Instant>,
    /// How often it happened since the last log line.
    unlogged: u64,
}

impl LogLimit {
    /// Counts one more; returns the number to log now, if a line is due.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
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
    fn what_happens_often_is_logged_together() {
        let mut limit = LogLimit::default();
        let start = Instant::now();
        assert_eq!(limit.due(start), Some(1));
        for _ in 0..200 {
            assert_eq!(limit.due(start + PERIOD / 2), None);
        }
        assert_eq!(limit.due(start + PERIOD), Some(201));
    }
}
