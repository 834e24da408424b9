//! How many reviews the checks at the interval may send: a small part of what the gateway spares upstream.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::ReviewBudget;

/// What is left of the budget.
#[derive(Debug)]
pub(super) struct BudgetMeter {
    setting: ReviewBudget,
    /// Reads a second that memory answers, averaged.
    reads_rate: f64,
    reads: u64,
    available: f64,
    at: Instant,
}

impl BudgetMeter {
    pub(super) const fn new(setting: ReviewBudget, now: Instant) -> Self {
        Self {
            setting,
            reads_rate: 0.0,
            reads: 0,
            available: 0.0,
            at: now,
        }
    }

    /// The number of reviews that may be sent now. `reads` is how many reads memory has answered so far.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "rates, not amounts"
    )]
    pub(super) fn available(&mut self, reads: u64, now: Instant) -> usize {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        let answered = reads.saturating_sub(self.reads);
        (self.at, self.reads) = (now, reads);
        if elapsed > 0.0 {
            let weight = (elapsed / AVERAGED.as_secs_f64()).min(1.0);
            let rate = answered as f64 / elapsed;
            self.reads_rate += weight * (rate - self.reads_rate);
        }
        let Some(rate) = self.rate() else {
            return usize::MAX;
        };
        // What was not used is not saved up, so that upstream never gets more than this in a second.
        self.available = (self.available + rate * elapsed).min(rate.max(1.0));
        self.available as usize
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub(super) fn spend(&mut self, reviews: usize) {
        self.available -= reviews as f64;
    }

    /// Reviews a second; `None` for no limit.
    pub(super) fn rate(&self) -> Option<f64> {
        match self.setting {
            ReviewBudget::Auto => Some((SHARE * self.reads_rate).clamp(RATE_MIN, RATE_MAX)),
            ReviewBudget::PerSecond(rate) => Some(f64::from(rate)),
            ReviewBudget::Unlimited => None,
        }
    }
}

const SHARE: f64 = 0.05;
const RATE_MIN: f64 = 1.0;
const RATE_MAX: f64 = 50.0;

/// The time over which reads are averaged.
const AVERAGED: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    /// Reviews in this many seconds, all of which are spent, if memory answers this many reads a second.
    fn spent(setting: ReviewBudget, reads: u64, seconds: u64) -> usize {
        let start = Instant::now();
        let mut meter = BudgetMeter::new(setting, start);
        let mut spent = 0;
        for second in 1..=seconds {
            let now = start + Duration::from_secs(second);
            let available = meter.available(second * reads, now);
            meter.spend(available);
            spent += available;
        }
        spent
    }

    #[test]
    fn the_budget_grows_with_what_is_spared() {
        assert_eq!(spent(ReviewBudget::Auto, 0, 60), 60);
        let of_200 = spent(ReviewBudget::Auto, 200, 600);
        assert!((5_000..=6_000).contains(&of_200), "{of_200}");
        let of_many = spent(ReviewBudget::Auto, 100_000, 60);
        assert!((2_700..=3_000).contains(&of_many), "{of_many}");
        assert_eq!(spent(ReviewBudget::PerSecond(7), 100_000, 10), 70);
        assert_eq!(spent(ReviewBudget::Unlimited, 0, 1), usize::MAX);
    }

    #[test]
    fn what_was_not_used_is_not_saved_up() {
        let start = Instant::now();
        let mut meter = BudgetMeter::new(ReviewBudget::PerSecond(7), start);
        assert_eq!(meter.available(0, start + Duration::from_secs(3600)), 7);
    }
}
