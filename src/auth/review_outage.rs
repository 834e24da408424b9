//! How long reviews have been failing: the longer that lasts, the later clients are asked to come again.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A failure that is longer ago belongs to an earlier outage. Clients come again after up to 30 s, and a review may take as long.
const PAUSE_MAX: Duration = Duration::from_secs(90);

/// Failures without a success between them.
#[derive(Debug, Default)]
pub(super) struct ReviewOutage(Mutex<Option<OutageTimes>>);

#[derive(Clone, Copy, Debug)]
struct OutageTimes {
    first: Instant,
    last: Instant,
}

impl ReviewOutage {
    /// Notes whether a review has had a result.
    pub(super) fn note(&self, has_result: bool) {
        let mut outage = self.0.lock();
        *outage = (!has_result).then(|| {
            let now = Instant::now();
            let first = outage.and_then(|outage| outage.still(now));
            OutageTimes {
                first: first.map_or(now, |outage| outage.first),
                last: now,
            }
        });
    }

    /// Time since the first failure; zero without an outage.
    pub(super) fn age(&self) -> Duration {
        let now = Instant::now();
        let outage = (*self.0.lock()).and_then(|outage| outage.still(now));
        outage.map_or(Duration::ZERO, |outage| now - outage.first)
    }
}

impl OutageTimes {
    /// The outage, if it may last until now.
    fn still(self, now: Instant) -> Option<Self> {
        (now - self.last < PAUSE_MAX).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_from_the_first_failure_to_the_next_success() {
        let outage = ReviewOutage::default();
        assert_eq!(outage.age(), Duration::ZERO);
        for seconds in [0, 80, 160] {
            outage.note(false);
            assert_eq!(outage.age().as_secs(), seconds);
            advance(Duration::from_secs(80)).await;
        }
        outage.note(true);
        assert_eq!(outage.age(), Duration::ZERO);
        outage.note(false);
        assert_eq!(outage.age(), Duration::ZERO, "another outage");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_that_are_far_apart_are_no_outage() {
        let outage = ReviewOutage::default();
        outage.note(false);
        advance(PAUSE_MAX).await;
        assert_eq!(outage.age(), Duration::ZERO);
        outage.note(false);
        assert_eq!(outage.age(), Duration::ZERO);
    }
}
