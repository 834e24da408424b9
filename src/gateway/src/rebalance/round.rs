//! Sends clients away at an even rate of watches, those first that have been connected longest. The pause after a connection is
//! proportional to the number of its watches (decision 52).

use std::time::Duration;

use prometheus::IntCounter;
use tokio::time::{Instant, sleep_until};

use crate::serve::OldestConnections;

const SECOND: Duration = Duration::from_secs(1);

/// What a round sends away, and how fast.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundOrder {
    /// How many watches the round may send away.
    pub(super) watches: usize,
    /// The round ends when the gateway has no more watches than this.
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
        // If the process stood still, the connections that were due meanwhile are not all sent away at once.
        self.next_at = self.next_at.max(Instant::now()) + self.pause_after(watches);
        true
    }

    /// Sends the other connections away while `go_on` returns true. Returns the number of watches that the whole round has sent away.
    pub(super) async fn finish(mut self, mut go_on: impl FnMut() -> bool) -> usize {
        loop {
            sleep_until(self.next_at).await;
            if self.sent >= self.order.watches || !go_on() || !self.recall_next() {
                return self.sent;
            }
        }
    }

    /// Connections that were passed over, because each had more watches than were left to send away.
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
