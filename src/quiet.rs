//! The quiet end: nobody writes any more, and then every client must have everything, although no further event pushes it out. A client
//! that lacks something when nothing has come for [`BOUND`] was left behind. Demo, load test and tests share this rule. Pure.

use std::time::Duration;

/// So long nothing may come while something is missing: far less than the minute after which a bookmark would bring it.
pub const BOUND: Duration = Duration::from_secs(1);
/// Shorter pauses between two arrivals are a busy machine's.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// How much silence one look may prove: what kept the observer from looking for longer may have kept the server from sending.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// How long nothing has come, as far as somebody looked.
///
/// Long pauses add up: a server that sends what waits a little at a time, by a timer, leaves its clients behind too.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    arrivals: u64,
    looked_at: Duration,
    /// Long pauses that are over.
    pauses: Duration,
    /// The one that goes on.
    lasted: Duration,
}

impl Silence {
    /// Begins at a moment, given how often something has come so far. Moments are distances from any one before all others.
    #[must_use]
    pub const fn begin(arrivals: u64, at: Duration) -> Self {
        Self {
            arrivals,
            looked_at: at,
            pauses: Duration::ZERO,
            lasted: Duration::ZERO,
        }
    }

    /// Somebody looks for what has come: how long nothing has.
    pub fn look(&mut self, arrivals: u64, at: Duration) -> Duration {
        if arrivals == self.arrivals {
            self.lasted += at.saturating_sub(self.looked_at).min(LOOK_MAX);
        } else {
            (self.pauses, self.lasted) = (self.long(), Duration::ZERO);
            self.arrivals = arrivals;
        }
        self.looked_at = at;
        self.long()
    }

    /// All long pauses.
    fn long(&self) -> Duration {
        let is_long = self.lasted >= PAUSE_MIN;
        self.pauses + if is_long { self.lasted } else { Duration::ZERO }
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
        // The machine stood still.
        assert_eq!(silence.look(10, ms(9_000)), ms(250));
        // A short pause is forgotten, a long one is not.
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
