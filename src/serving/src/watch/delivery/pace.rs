//! How soon a pass over the streams of a view follows the last one. After a long pass, events wait for each other for a moment, so that one
//! write brings several to a client. Reads no clock.

use std::time::Duration;

use tokio::time::Instant;

/// The longest pause. Timers add up to a millisecond.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(10);
/// The shortest pause: timers wait whole milliseconds.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// So many batches end a pause: a view keeps 64.
const BATCHES_MAX: u32 = 16;

/// The time that a pass takes, and the pause after it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PassPace {
    /// What the running pass has taken of its worker's time, without other work in between.
    taken: Duration,
    /// The end of the pause.
    resume_at: Option<Instant>,
    /// How often a pass was to begin during the pause.
    batches: u32,
}

impl PassPace {
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    pub(super) fn add(&mut self, taken: Duration) {
        self.taken += taken;
    }

    /// A pass of at least `pass_min` is followed by a pause as long as itself.
    pub(super) fn finish(&mut self, now: Instant, pass_min: Duration) {
        if self.taken >= pass_min {
            self.resume_at = Some(now + self.taken.clamp(PAUSE_MIN, PAUSE_MAX));
        }
    }

    /// Until when a pass has to wait that is to begin now because of a batch, and whether it is the first one; `None` if it may begin.
    pub(super) fn pause(&mut self, now: Instant) -> Option<(Instant, bool)> {
        let at = self.resume_at.filter(|at| *at > now)?;
        self.batches += 1;
        (self.batches < BATCHES_MAX).then_some((at, self.batches == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS_MIN: Duration = Duration::from_millis(2);

    /// A pace after a pass of so many milliseconds.
    fn paced(pass: u64, end: Instant) -> PassPace {
        let mut pace = PassPace::default();
        pace.begin();
        // In two turns.
        for _ in 0..2 {
            pace.add(Duration::from_micros(pass * 500));
        }
        pace.finish(end, PASS_MIN);
        pace
    }

    #[test]
    fn a_pause_is_as_long_as_the_pass_before_it_up_to_ten_milliseconds() {
        let end = Instant::now();
        let pause = |pass| {
            let found = paced(pass, end).pause(end);
            found.map(|(at, _)| u64::try_from((at - end).as_millis()).unwrap())
        };
        let passes = [0, 1, 2, 5, 10, 11, 500];
        let expected = [None, None, Some(2), Some(5), Some(10), Some(10), Some(10)];
        assert_eq!(passes.map(pause), expected);
    }

    #[test]
    fn a_pause_is_over_at_its_end_and_when_many_batches_have_come() {
        let end = Instant::now();
        let at = end + Duration::from_millis(5);
        let mut pace = paced(5, end);
        assert_eq!(pace.pause(end), Some((at, true)));
        assert_eq!(pace.pause(end), Some((at, false)));
        assert_eq!(pace.pause(at), None);
        let mut pace = paced(5, end);
        let pauses = (0..BATCHES_MAX).map_while(|_| pace.pause(end)).count();
        assert_eq!(pauses, 15);
    }
}
