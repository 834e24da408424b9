//! Sends clients away, those first that have been connected longest, at an even rate: after a connection it waits for as long as the rate
//! allows for the watches that it had (decision 52).

use std::time::Duration;

use prometheus::IntCounter;
use tokio::time::{Instant, sleep_until};

use crate::serve::OldestConnections;

const SECOND: Duration = Duration::from_secs(1);

/// What a round sends away, and how fast.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundOrder {
    pub(super) watches: usize,
    /// The round ends when no more watches are left.
    pub(super) floor: usize,
    pub(super) per_second: usize,
}

/// A round, from its first connection to its last.
#[derive(Debug)]
pub(super) struct Round {
    connections: OldestConnections,
    order: RoundOrder,
    recalls: IntCounter,
    sent: usize,
    /// When the rate allows the next connection.
    next_at: Instant,
}

impl Round {
    pub(super) fn new(
        connections: OldestConnections,
        order: RoundOrder,
        recalls: IntCounter,
    ) -> Self {
        Self {
            connections,
            order,
            recalls,
            sent: 0,
            next_at: Instant::now(),
        }
    }

    /// Recalls one more connection; returns whether there was one that may be sent away.
    pub(super) fn recall_next(&mut self) -> bool {
        let left = self.order.watches.saturating_sub(self.sent);
        let Some(watches) = self.connections.recall_next(left) else {
            return false;
        };
        self.recalls.inc();
        self.sent += watches;
        // After a standstill of the process, what was missed is not made up for at once.
        self.next_at = self.next_at.max(Instant::now()) + self.pause_after(watches);
        true
    }

    /// Sends the others away, as long as it is to `go_on`; returns the number of watches of all.
    pub(super) async fn finish(mut self, mut go_on: impl FnMut() -> bool) -> usize {
        loop {
            sleep_until(self.next_at).await;
            if self.sent >= self.order.watches || !go_on() || !self.recall_next() {
                return self.sent;
            }
        }
    }

    /// Connections that had more watches than were too many.
    pub(super) const fn passed_over(&self) -> usize {
        self.connections.passed_over()
    }

    fn pause_after(&self, watches: usize) -> Duration {
        let watches = u32::try_from(watches).unwrap_or(u32::MAX);
        let per_second = u32::try_from(self.order.per_second).unwrap_or(u32::MAX);
        SECOND.saturating_mul(watches) / per_second.max(1)
    }
}

#[cfg(test)]
mod tests;
