//! How long reviews have been failing: the longer that lasts, the later clients are asked to retry. Outages are logged rarely.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::upstream::ReviewError;
use crate::log_limit::FaultLog;

/// A failure that is longer ago belongs to an earlier outage. Clients retry after up to 30 s, and a review may take as long.
const PAUSE_MAX: Duration = Duration::from_secs(90);

/// An outage that is over is logged if it was at least this long: single reviews fail for reasons of their own.
const LOGGED_MIN: Duration = Duration::from_secs(10);

/// Failures without a success between them.
#[derive(Debug)]
pub(super) struct ReviewOutage {
    /// What is reviewed, for the log.
    subject: &'static str,
    times: Mutex<Option<OutageTimes>>,
    log: Mutex<FaultLog<()>>,
}

#[derive(Clone, Copy, Debug)]
struct OutageTimes {
    first: Instant,
    last: Instant,
}

impl ReviewOutage {
    pub(super) fn of(subject: &'static str) -> Self {
        Self {
            subject,
            times: Mutex::default(),
            log: Mutex::default(),
        }
    }

    /// Notes that a review has had a result.
    pub(super) fn succeeded(&self) {
        let outage = self.times.lock().take();
        let was_logged = outage.is_some() && self.log.lock().end();
        if was_logged && outage.is_some_and(|outage| outage.last - outage.first >= LOGGED_MIN) {
            info!(review = self.subject, "reviews have results again");
        }
    }

    /// Notes that a review has had no result.
    pub(super) fn failed(&self, error: &ReviewError) {
        let now = Instant::now();
        let mut outage = self.times.lock();
        *outage = Some(OutageTimes {
            first: outage
                .and_then(|outage| outage.still(now))
                .map_or(now, |outage| outage.first),
            last: now,
        });
        if self.log.lock().is_due(()) {
            warn!(review = self.subject, %error, "reviews fail: callers are refused with 5xx; this is counted, and logged rarely");
        }
    }

    /// Time since the first failure; zero without an outage.
    pub(super) fn age(&self) -> Duration {
        let now = Instant::now();
        let outage = (*self.times.lock()).and_then(|outage| outage.still(now));
        outage.map_or(Duration::ZERO, |outage| now - outage.first)
    }
}

impl OutageTimes {
    /// The outage, unless its last failure is too long ago.
    fn still(self, now: Instant) -> Option<Self> {
        (now - self.last < PAUSE_MAX).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::upstream::samples::captured_log::CapturedLog;

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_from_the_first_failure_to_the_next_success() {
        let outage = ReviewOutage::of("TokenReview");
        assert_eq!(outage.age(), Duration::ZERO);
        for seconds in [0, 80, 160] {
            outage.failed(&ReviewError::Busy);
            assert_eq!(outage.age().as_secs(), seconds);
            advance(Duration::from_secs(80)).await;
        }
        outage.succeeded();
        assert_eq!(outage.age(), Duration::ZERO);
        outage.failed(&ReviewError::Busy);
        assert_eq!(outage.age(), Duration::ZERO, "another outage");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_and_its_end_are_logged_once() {
        let (log, _guard) = CapturedLog::start();
        let outage = ReviewOutage::of("TokenReview");
        for _ in 0..20 {
            outage.failed(&ReviewError::Busy);
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(log.lines_with("reviews fail").len(), 1);
        outage.succeeded();
        assert_eq!(log.lines_with("reviews have results again").len(), 1);
        for _ in 0..100 {
            outage.failed(&ReviewError::Busy);
            outage.succeeded();
        }
        let lines = log.lines_with("review=").len();
        assert!(lines <= 3, "single failures: {lines}");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_that_are_far_apart_are_no_outage() {
        let outage = ReviewOutage::of("TokenReview");
        outage.failed(&ReviewError::Busy);
        advance(PAUSE_MAX).await;
        assert_eq!(outage.age(), Duration::ZERO);
        outage.failed(&ReviewError::Busy);
        assert_eq!(outage.age(), Duration::ZERO);
    }
}
