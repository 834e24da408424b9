//! The quiet end of a demo: when its writes are over, and whether every watcher has everything then. Pure.

use std::time::Duration;

use crate::quiet::{BOUND, Silence};

/// Without a write for so long the churn has stopped: many of its beats.
const WRITES_OVER: Duration = Duration::from_millis(200);

/// What is seen at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuietSample {
    /// Since some moment before all others.
    pub(super) at: Duration,
    /// Events written so far.
    pub(super) written: u64,
    /// Bytes delivered to all watchers so far.
    pub(super) delivered_bytes: u64,
    /// Watchers that lack something.
    pub(super) behind: usize,
}

/// Looks, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuietEnd {
    last: QuietSample,
    wrote_at: Duration,
    came_at: Duration,
    silence: Silence,
}

impl QuietEnd {
    pub(super) const fn begin(look: QuietSample) -> Self {
        Self {
            last: look,
            wrote_at: look.at,
            came_at: look.at,
            silence: Silence::begin(look.delivered_bytes, look.at),
        }
    }

    /// Takes a look in. The end, if it has come: from the last write to the last event, whoever may be behind then.
    pub(super) fn look(&mut self, look: QuietSample) -> Option<Duration> {
        if look.written != self.last.written {
            self.wrote_at = look.at;
            self.silence = Silence::begin(look.delivered_bytes, look.at);
        }
        if look.delivered_bytes != self.last.delivered_bytes {
            self.came_at = look.at;
        }
        let silence = self.silence.look(look.delivered_bytes, look.at);
        self.last = look;
        let writes_over = look.at.saturating_sub(self.wrote_at) >= WRITES_OVER;
        let over = writes_over && (look.behind == 0 || silence >= BOUND);
        over.then(|| self.came_at.saturating_sub(self.wrote_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn look(at: u64, written: u64, delivered_bytes: u64, behind: usize) -> QuietSample {
        QuietSample {
            at: Duration::from_millis(at),
            written,
            delivered_bytes,
            behind,
        }
    }

    #[test]
    fn all_is_over_when_writes_are_and_nobody_is_behind() {
        let mut end = QuietEnd::begin(look(0, 5, 50, 2));
        assert_eq!(end.look(look(20, 6, 55, 2)), None);
        assert_eq!(end.look(look(90, 6, 60, 0)), None);
        let took = Duration::from_millis(70);
        assert_eq!(end.look(look(220, 6, 60, 0)), Some(took));
    }

    #[test]
    fn who_is_behind_is_waited_for_while_anything_comes() {
        let mut end = QuietEnd::begin(look(0, 6, 50, 2));
        for step in 1..200 {
            assert_eq!(end.look(look(step * 50, 6, 50 + step, 2)), None);
        }
        let mut at = 199 * 50;
        let over = loop {
            at += 50;
            if end.look(look(at, 6, 249, 1)).is_some() {
                break at;
            }
        };
        assert_eq!(over, 199 * 50 + 1_000);
    }

    #[test]
    fn a_machine_that_stood_still_is_no_silence() {
        let mut end = QuietEnd::begin(look(0, 6, 50, 2));
        assert_eq!(end.look(look(30_000, 6, 50, 2)), None);
    }
}
