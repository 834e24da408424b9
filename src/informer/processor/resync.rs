//! When a handler is told everything again. Pure: time comes in.

use std::time::{Duration, Instant};

/// As client-go has it; a shorter period would keep an informer busy with nothing.
const PERIOD_MIN: Duration = Duration::from_secs(1);

/// The resyncs of one handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resync {
    period: Duration,
    next_at: Instant,
}

impl Resync {
    /// The first one is due after a period. A period of nothing is none, as in client-go.
    pub(super) fn new(period: Duration, now: Instant) -> Option<Self> {
        if period.is_zero() {
            return None;
        }
        let period = period.max(PERIOD_MIN);
        let next_at = now.checked_add(period)?;
        Some(Self { period, next_at })
    }

    /// When the next one is due.
    pub(super) const fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Whether one is due. If so, the next is due a period from now: one that was missed is not made up for.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next_at;
        if due {
            self.next_at = now.checked_add(self.period).unwrap_or(now);
        }
        due
    }
}
