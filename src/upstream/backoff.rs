//! How long to wait before trying again. Reads no clock and draws no random numbers.

use std::time::{Duration, Instant};

/// The first step. This and the two below are those of client-go's reflector (docs/PROTOCOL.md §7.1), so that a herd of gateways
/// behaves like a herd of informers, for which API servers are sized.
pub const STEP_FIRST: Duration = Duration::from_millis(800);
/// The longest step; with full jitter a wait is at most twice as long.
pub const STEP_MAX: Duration = Duration::from_secs(30);
/// So long without a wait counts as health, and the steps begin anew.
pub const RESET_AFTER: Duration = Duration::from_secs(120);
/// The gateway's own first and longest step: one gateway asks where thousands of informers would.
const BRISK_FIRST: Duration = Duration::from_millis(200);
const BRISK_MAX: Duration = Duration::from_secs(3);
/// For a resource that was given up.
const PATIENT_FIRST: Duration = Duration::from_secs(1);
const PATIENT_MAX: Duration = Duration::from_secs(150);
/// Longest `Retry-After` that is believed. The API server asks for at most 30 s; a proxy's hour must not stop a cache for an hour.
pub const FLOOR_MAX: Duration = Duration::from_secs(300);

/// Exponential waits with full jitter: a wait is one step and up to one more, and the step doubles each time.
#[derive(Clone, Debug)]
pub struct Backoff {
    step: Duration,
    step_first: Duration,
    step_max: Duration,
    healthy_since: Option<Instant>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    /// At the first step, with client-go's bounds.
    #[must_use]
    pub const fn new() -> Self {
        Self::between(STEP_FIRST, STEP_MAX)
    }

    /// At the first step, with bounds for one that asks on behalf of thousands: clients notice how long it waits.
    #[must_use]
    pub const fn brisk() -> Self {
        Self::between(BRISK_FIRST, BRISK_MAX)
    }

    /// At the first step, with bounds for what will hardly have changed a minute later, and costs a list to find out.
    #[must_use]
    pub const fn patient() -> Self {
        Self::between(PATIENT_FIRST, PATIENT_MAX)
    }

    const fn between(step_first: Duration, step_max: Duration) -> Self {
        Self {
            step: step_first,
            step_first,
            step_max,
            healthy_since: None,
        }
    }

    /// What was tried works again: the steps begin anew.
    pub const fn succeeded(&mut self) {
        self.step = self.step_first;
    }

    /// The next wait. `random` is uniform over all of `u64`.
    pub fn next(&mut self, now: Instant, random: u64) -> Duration {
        self.next_at_least(now, random, Duration::ZERO)
    }

    /// The next wait, no shorter than `floor`, which is what `Retry-After` asked for (believed up to [`FLOOR_MAX`]).
    /// The jitter comes on top of the floor, because everybody else was given the same floor.
    pub fn next_at_least(&mut self, now: Instant, random: u64, floor: Duration) -> Duration {
        let healthy = |since| now.saturating_duration_since(since) > RESET_AFTER;
        if self.healthy_since.is_some_and(healthy) {
            self.step = self.step_first;
        }
        let delay = self.step.max(floor.min(FLOOR_MAX)) + fraction(self.step, random);
        self.step = (self.step * 2).min(self.step_max);
        self.healthy_since = Some(now + delay);
        delay
    }
}

/// The part `random / 2^64` of `whole`, to the nearest 2^-32.
fn fraction(whole: Duration, random: u64) -> Duration {
    let nanos = (whole.as_nanos() * u128::from(random >> 32)) >> 32;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
