//! When the watches of a resource end if all of them have to: one after the other, so that their clients do not come back together.

use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// The golden ratio's fraction. Its multiples, modulo 1, divide the interval from 0 to 1 evenly, however many there are.
const STEP: f64 = 0.618_033_988_749_894_9;

/// Spreads the ends of watches evenly over a time, however many watches there are.
#[derive(Debug)]
pub struct EndSchedule {
    begin: Instant,
    length: Duration,
    /// Where in the time the next watch ends, from 0 to 1.
    next: Mutex<f64>,
}

impl EndSchedule {
    /// A schedule from `begin` on. The first watch ends after the fraction `first` of the `length`; it is random, so that the clients of
    /// several replicas do not come back at the same moments.
    #[must_use]
    pub fn new(begin: Instant, length: Duration, first: f64) -> Self {
        Self {
            begin,
            length,
            next: Mutex::new(first.fract()),
        }
    }

    /// The time at which the caller's watch ends; another one at each call.
    #[must_use]
    pub fn draw(&self) -> Instant {
        let fraction = {
            let mut next = self.next.lock();
            let fraction = *next;
            *next = (fraction + STEP).fract();
            fraction
        };
        self.begin + self.length.mul_f64(fraction)
    }

    /// The time at which all watches have ended.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.begin + self.length
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
