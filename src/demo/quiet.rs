//! Detects the end of a demo: writes have stopped, and every watcher has every event or no more events arrive. Pure.

use std::time::Duration;

use crate::quiet::{BOUND, Silence};

/// Writes have stopped if there was none for this long; the churn's writes are much closer together.
const WRITES_STOPPED_AFTER: Duration = Duration::from_millis(200);

/// The counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuietSample {
    /// Time since a fixed moment before all samples.
    pub(super) at: Duration,
    /// Events written up to now.
    pub(super) written: u64,
    /// Bytes delivered to all watchers up to now.
    pub(super) delivered_bytes: u64,
    /// Number of watchers that lack events.
    pub(super) behind: usize,
}

/// Evaluates samples, in order of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuietEnd {
    last: QuietSample,
    /// When the last write was seen.
    written_at: Duration,
    /// When the last delivery was seen.
    delivered_at: Duration,
    silence: Silence,
}

impl QuietEnd {
    pub(super) const fn begin(sample: QuietSample) -> Self {
        Self {
            last: sample,
            written_at: sample.at,
            delivered_at: sample.at,
            silence: Silence::begin(sample.delivered_bytes, sample.at),
        }
    }

    /// Adds a sample. At the end it returns the time from the last write to the last delivery, even if some watchers are behind.
    pub(super) fn add(&mut self, sample: QuietSample) -> Option<Duration> {
        if sample.written != self.last.written {
            self.written_at = sample.at;
            self.silence = Silence::begin(sample.delivered_bytes, sample.at);
        }
        if sample.delivered_bytes != self.last.delivered_bytes {
            self.delivered_at = sample.at;
        }
        let silence = self.silence.look(sample.delivered_bytes, sample.at);
        self.last = sample;
        let writes_stopped = sample.at.saturating_sub(self.written_at) >= WRITES_STOPPED_AFTER;
        let is_end = writes_stopped && (sample.behind == 0 || silence >= BOUND);
        is_end.then(|| self.delivered_at.saturating_sub(self.written_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn sample(at: u64, written: u64, delivered_bytes: u64, behind: usize) -> QuietSample {
        QuietSample {
            at: Duration::from_millis(at),
            written,
            delivered_bytes,
            behind,
        }
    }

    #[test]
    fn all_is_over_when_writes_are_and_nobody_is_behind() {
        let mut end = QuietEnd::begin(sample(0, 5, 50, 2));
        assert_eq!(end.add(sample(20, 6, 55, 2)), None);
        assert_eq!(end.add(sample(90, 6, 60, 0)), None);
        let settled = Duration::from_millis(70);
        assert_eq!(end.add(sample(220, 6, 60, 0)), Some(settled));
    }

    #[test]
    fn who_is_behind_is_waited_for_while_anything_comes() {
        let mut end = QuietEnd::begin(sample(0, 6, 50, 2));
        for step in 1..200 {
            assert_eq!(end.add(sample(step * 50, 6, 50 + step, 2)), None);
        }
        let mut at = 199 * 50;
        let over = loop {
            at += 50;
            if end.add(sample(at, 6, 249, 1)).is_some() {
                break at;
            }
        };
        assert_eq!(over, 199 * 50 + 1_000);
    }

    #[test]
    fn a_machine_that_stood_still_is_no_silence() {
        let mut end = QuietEnd::begin(sample(0, 6, 50, 2));
        assert_eq!(end.add(sample(30_000, 6, 50, 2)), None);
    }
}
