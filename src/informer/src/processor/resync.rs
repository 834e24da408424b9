//! When a handler's resync is due. Pure: time is an argument.

use std::time::{Duration, Instant};

/// The shortest period, as in client-go. A shorter one would keep the informer busy without benefit.
const PERIOD_MIN: Duration = Duration::from_secs(1);

/// The resync schedule of one handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resync {
    period: Duration,
    next_at: Instant,
}

impl Resync {
    /// The first resync is due after one period. A period of zero means no resync, as in client-go.
    pub(super) fn new(period: Duration, now: Instant) -> Option<Self> {
        if period.is_zero() {
            return None;
        }
        let period = period.max(PERIOD_MIN);
        let next_at = now.checked_add(period)?;
        Some(Self { period, next_at })
    }

    /// When the next resync is due.
    pub(super) const fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Whether a resync is due. If so, the next one is due one period from now: missed resyncs are not made up for.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next_at;
        if due {
            self.next_at = now.checked_add(self.period).unwrap_or(now);
        }
        due
    }
}
