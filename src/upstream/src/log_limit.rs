//! Limits of log lines: about what may happen any number of times a second, where one line covers many, and about faults that last.

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

/// A fault that lasts is logged again after this time, so that the log of the last hour shows it.
const REPEAT: Duration = Duration::from_secs(3_000);

/// Limits the log lines about a fault that may last: one line when it begins or its cause changes, then one in almost an hour, and one when it
/// is over. A fault that comes and goes is not logged more often than anything else.
#[derive(Debug)]
pub struct FaultLog<C> {
    /// The cause that was logged last; `None` without a fault.
    cause: Option<C>,
    logged_at: Option<Instant>,
}

impl<C> Default for FaultLog<C> {
    fn default() -> Self {
        Self {
            cause: None,
            logged_at: None,
        }
    }
}

impl<C: PartialEq> FaultLog<C> {
    /// Whether a line about a fault of this cause is due.
    pub fn is_due(&mut self, cause: C) -> bool {
        let now = Instant::now();
        let pause = match self.cause.as_ref() == Some(&cause) {
            true => REPEAT,
            false => PERIOD,
        };
        if self.logged_at.is_some_and(|at| now - at < pause) {
            return false;
        }
        (self.cause, self.logged_at) = (Some(cause), Some(now));
        true
    }

    /// Ends the fault. Returns whether there was one that was logged.
    pub fn end(&mut self) -> bool {
        self.cause.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_logged_when_it_begins_when_its_cause_changes_rarely_while_it_lasts_and_at_its_end()
     {
        let mut log = FaultLog::default();
        let mut due = Vec::new();
        for minute in 0..150 {
            let cause = if minute < 100 { "forbidden" } else { "refused" };
            if log.is_due(cause) {
                due.push(minute);
            }
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert_eq!(due, [0, 50, 100]);
        assert!(log.end());
        assert!(!log.end(), "the end is logged once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_that_comes_and_goes_is_not_logged_each_time() {
        let mut log = FaultLog::default();
        let mut lines = 0;
        for _ in 0..100 {
            lines += usize::from(log.is_due("gone")) + usize::from(log.end());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(lines, 2 * 10);
    }

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
