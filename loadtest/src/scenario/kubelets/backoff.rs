//! client-go's back-off of a reflector: 800 ms, doubled each time up to 30 s, with jitter of up to as much again; it begins again after
//! two minutes without a failure. Pure: time and chance are arguments.

use std::time::Duration;

/// The first delay, `wait.NewExponentialBackoffManager(800ms, 30s, 2min, 2.0, 1.0)` in client-go's reflector.
const FIRST: Duration = Duration::from_millis(800);
/// The longest delay without jitter.
const LONGEST: Duration = Duration::from_secs(30);
/// After this time without a delay the next one is the first again.
const RESET_AFTER: Duration = Duration::from_secs(120);
const FACTOR: u32 = 2;

/// The delays of one reflector.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    /// When the last delay began.
    last_at: Option<Duration>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            next: FIRST,
            last_at: None,
        }
    }
}

impl Backoff {
    /// The delay that begins now; `chance` is from 0 to 1.
    pub fn delay(&mut self, now: Duration, chance: f64) -> Duration {
        let was_quiet = self
            .last_at
            .is_some_and(|last_at| now.saturating_sub(last_at) > RESET_AFTER);
        if was_quiet {
            self.next = FIRST;
        }
        self.last_at = Some(now);
        let delay = self.next;
        self.next = (delay * FACTOR).min(LONGEST);
        delay + delay.mul_f64(chance.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_half_a_minute_and_begin_again_after_two_minutes() {
        let mut backoff = Backoff::default();
        let mut now = Duration::from_secs(10);
        let mut delays = Vec::new();
        for _ in 0..8 {
            let delay = backoff.delay(now, 0.0);
            delays.push(delay.as_millis());
            now += delay;
        }
        assert_eq!(
            delays,
            [800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]
        );
        let later = now + RESET_AFTER;
        assert_eq!(backoff.delay(later, 0.0).as_millis(), 800);
    }
}
