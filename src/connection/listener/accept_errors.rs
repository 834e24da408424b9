//! Says that connections cannot be accepted, and how many, without a line for each: while open files are short every attempt
//! fails.

use std::io;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

/// One line in this time.
const PERIOD: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct AcceptErrors {
    said_at: Option<Instant>,
    /// Failures that no line has told of.
    unsaid: u64,
}

impl AcceptErrors {
    /// A connection could not be accepted.
    pub(super) fn note(&mut self, error: &io::Error, now: Instant) {
        if let Some(count) = self.due(now) {
            warn!(%error, count, "connections could not be accepted");
        }
    }

    /// How many failures are to be told of now, if any.
    fn due(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        let is_recent = |at| now.saturating_duration_since(at) < PERIOD;
        if self.said_at.is_some_and(is_recent) {
            return None;
        }
        self.said_at = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_together() {
        let mut errors = AcceptErrors::default();
        let begun = Instant::now();
        assert_eq!(errors.due(begun), Some(1));
        for _ in 0..200 {
            assert_eq!(errors.due(begun + PERIOD / 2), None);
        }
        assert_eq!(errors.due(begun + PERIOD), Some(201));
    }
}
