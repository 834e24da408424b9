//! Exponential back-off with jitter. Pure: the clock and the random number are arguments.

use std::time::{Duration, Instant};

/// First step. [`STEP_FIRST`], [`STEP_MAX`] and [`RESET_AFTER`] are the values of client-go's reflector (docs/PROTOCOL.md
/// §7.1): API servers are sized for many informers, and many gateways then retry no faster.
pub const STEP_FIRST: Duration = Duration::from_millis(800);
/// Longest step. With full jitter, a wait is at most twice as long.
pub const STEP_MAX: Duration = Duration::from_secs(30);
/// If more time than this passes after the end of a wait before the next wait is needed, the steps start from the first
/// again.
pub const RESET_AFTER: Duration = Duration::from_secs(120);
/// First and longest step of the gateway's own retries. They are shorter than client-go's, because one gateway retries
/// where thousands of informers would.
const BRISK_FIRST: Duration = Duration::from_millis(200);
const BRISK_MAX: Duration = Duration::from_secs(3);
/// First and longest step between attempts to cache a resource that was given up.
const PATIENT_FIRST: Duration = Duration::from_secs(1);
const PATIENT_MAX: Duration = Duration::from_secs(150);
/// First and longest step between attempts to cache a resource whose versions mean nothing: each of them ends the clients' watches with 410.
const RELUCTANT_FIRST: Duration = PATIENT_MAX;
const RELUCTANT_MAX: Duration = Duration::from_secs(600);
/// As [`RESET_AFTER`], for resources that were given up. Some are given up again for what happens twice within ten minutes.
const GIVEN_UP_RESET_AFTER: Duration = Duration::from_secs(900);
/// Longest `Retry-After` that is honoured. The API server asks for at most 30 s; a proxy that asks for an hour must not
/// keep a cache old for an hour.
pub const FLOOR_MAX: Duration = Duration::from_secs(60);

/// Exponential back-off with full jitter: a wait is one step plus a random part of a step, and the step doubles after each
/// wait.
#[derive(Clone, Debug)]
pub struct Backoff {
    step: Duration,
    step_first: Duration,
    step_max: Duration,
    reset_after: Duration,
    /// End of the last wait, if there was one.
    last_wait_end: Option<Instant>,
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

    /// At the first step, with bounds for a task that serves thousands of clients: they notice how long it waits.
    #[must_use]
    pub const fn brisk() -> Self {
        Self::between(BRISK_FIRST, BRISK_MAX)
    }

    /// At the first step, with bounds for a resource that was given up: the cause rarely goes away within a minute, and
    /// each attempt costs upstream a list.
    #[must_use]
    pub const fn patient() -> Self {
        Self {
            reset_after: GIVEN_UP_RESET_AFTER,
            ..Self::between(PATIENT_FIRST, PATIENT_MAX)
        }
    }

    /// At the first step, with bounds for a resource that was given up because its versions mean nothing: that rarely changes at all.
    #[must_use]
    pub const fn reluctant() -> Self {
        Self {
            reset_after: GIVEN_UP_RESET_AFTER,
            ..Self::between(RELUCTANT_FIRST, RELUCTANT_MAX)
        }
    }

    const fn between(step_first: Duration, step_max: Duration) -> Self {
        Self {
            step: step_first,
            step_first,
            step_max,
            reset_after: RESET_AFTER,
            last_wait_end: None,
        }
    }

    /// The same back-off with a longest step of at most this.
    #[must_use]
    pub fn at_most(self, step_max: Duration) -> Self {
        Self {
            step_max: step_max.max(self.step_first),
            ..self
        }
    }

    /// The attempt ended after it had lasted for this time. If that is longer than the step, attempts are rare enough without it.
    pub fn outlived(&mut self, time: Duration) {
        if time >= self.step {
            self.succeeded();
        }
    }

    /// The attempt succeeded: the next wait is the first step again.
    pub const fn succeeded(&mut self) {
        self.step = self.step_first;
    }

    /// Returns the next wait. `random` must be uniform over all of `u64`.
    pub fn next(&mut self, now: Instant, random: u64) -> Duration {
        self.next_at_least(now, random, Duration::ZERO)
    }

    /// Returns the next wait, which is at least `floor`: the value of `Retry-After`, honoured up to [`FLOOR_MAX`]. The
    /// jitter is added to the floor, because the other clients were given the same floor.
    pub fn next_at_least(&mut self, now: Instant, random: u64, floor: Duration) -> Duration {
        if self
            .last_wait_end
            .is_some_and(|since| now.saturating_duration_since(since) > self.reset_after)
        {
            self.step = self.step_first;
        }
        let delay = self.step.max(floor.min(FLOOR_MAX)) + fraction(self.step, random);
        self.step = (self.step * 2).min(self.step_max);
        self.last_wait_end = Some(now + delay);
        delay
    }
}

/// Returns the fraction `random / 2^64` of `whole`, with a resolution of 2^-32.
pub(super) fn fraction(whole: Duration, random: u64) -> Duration {
    let nanos = (whole.as_nanos() * u128::from(random >> 32)) >> 32;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
