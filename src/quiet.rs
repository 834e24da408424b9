//! Detects clients that were left behind. At the quiet end of a run no object is written any more, and every client must have every event
//! although no further event wakes it. A client that lacks events while nothing has arrived for [`BOUND`] was left behind. The demo, the
//! load test and the tests share this rule. Pure.

use std::time::Duration;

/// How long nothing may arrive while events are missing: far less than the minute after which a bookmark would deliver them.
pub const BOUND: Duration = Duration::from_secs(1);
/// Shorter pauses between two arrivals are attributed to a busy machine.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// The longest silence that one observation proves: if the observer ran late, the server may have run late for the same reason.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// How long nothing has arrived, as far as it was observed.
///
/// Long pauses add up: a server that delivers pending events only a few at a time, by a timer, leaves its clients behind, too.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    arrivals: u64,
    observed_at: Duration,
    /// The sum of the long pauses that have ended.
    pauses: Duration,
    /// The current pause.
    current_pause: Duration,
}

impl Silence {
    /// Starts at a moment with the number of arrivals so far. Moments are durations since a common start.
    #[must_use]
    pub const fn begin(arrivals: u64, at: Duration) -> Self {
        Self {
            arrivals,
            observed_at: at,
            pauses: Duration::ZERO,
            current_pause: Duration::ZERO,
        }
    }

    /// Records an observation; returns how long nothing has arrived in all long pauses.
    pub fn look(&mut self, arrivals: u64, at: Duration) -> Duration {
        if arrivals == self.arrivals {
            self.current_pause += at.saturating_sub(self.observed_at).min(LOOK_MAX);
        } else {
            (self.pauses, self.current_pause) = (self.total(), Duration::ZERO);
            self.arrivals = arrivals;
        }
        self.observed_at = at;
        self.total()
    }

    /// The sum of all long pauses, the current one included.
    fn total(&self) -> Duration {
        let is_long = self.current_pause >= PAUSE_MIN;
        self.pauses
            + if is_long {
                self.current_pause
            } else {
                Duration::ZERO
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn long_pauses_in_which_nothing_came_add_up() {
        let mut silence = Silence::begin(10, ms(0));
        for look in 1..=5 {
            silence.look(10, ms(40 * look));
        }
        // The machine was stopped in between: one observation proves at most 50 ms.
        assert_eq!(silence.look(10, ms(9_000)), ms(250));
        // A short pause is discarded, a long one is counted.
        assert_eq!(silence.look(11, ms(9_010)), ms(250));
        assert_eq!(silence.look(11, ms(9_050)), ms(250));
        assert_eq!(silence.look(12, ms(9_060)), ms(250));
        for look in 1..=4 {
            silence.look(12, ms(9_060 + 50 * look));
        }
        assert_eq!(silence.look(12, ms(9_270)), ms(460));
    }

    #[test]
    fn while_anything_comes_there_is_no_silence() {
        let mut silence = Silence::begin(0, ms(0));
        for look in 1..200 {
            assert_eq!(silence.look(look, ms(150 * look)), ms(0));
        }
    }
}
