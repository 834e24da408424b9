//! Whether the watches of roles and bindings are in contact with upstream. Reads no clock.

use std::time::Duration;

use strum::VariantArray;
use tokio::time::Instant;

use crate::informer::{FailureKind, InformerCounts};

/// When upstream last sent data for each of the four kinds. Its watches carry a bookmark about every minute.
pub(super) struct UpstreamContact([ContactRecord; 4]);

#[derive(Clone, Copy)]
struct ContactRecord {
    bytes: u64,
    failures: u64,
    at: Instant,
}

impl UpstreamContact {
    pub(super) fn new(now: Instant) -> Self {
        let record = ContactRecord {
            bytes: 0,
            failures: 0,
            at: now,
        };
        Self([record; 4])
    }

    pub(super) fn update(&mut self, counts: &[InformerCounts; 4], now: Instant) {
        for (last, counts) in self.0.iter_mut().zip(counts) {
            let failures = FailureKind::VARIANTS
                .iter()
                .map(|kind| counts.failures(*kind))
                .sum();
            // The bytes of an error response say nothing about roles.
            if counts.bytes != last.bytes && failures == last.failures {
                last.at = now;
            }
            (last.bytes, last.failures) = (counts.bytes, failures);
        }
    }

    pub(super) fn is_current(&self, stale_after: Duration, now: Instant) -> bool {
        self.0.iter().all(|last| now - last.at < stale_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE_AFTER: Duration = Duration::from_secs(180);

    fn counts_with_bytes(bytes: u64) -> InformerCounts {
        let mut counts = InformerCounts::default();
        counts.bytes += bytes;
        counts
    }

    #[tokio::test(start_paused = true)]
    async fn roles_are_current_as_long_as_all_kinds_are_heard_of() {
        let mut contact = UpstreamContact::new(Instant::now());
        let counts = |bytes, last| {
            [
                counts_with_bytes(bytes),
                counts_with_bytes(bytes),
                counts_with_bytes(bytes),
                counts_with_bytes(last),
            ]
        };
        for minute in 1..10 {
            tokio::time::advance(Duration::from_secs(60)).await;
            contact.update(&counts(minute, minute), Instant::now());
            assert!(contact.is_current(STALE_AFTER, Instant::now()));
        }
        // One kind sends nothing any more.
        for minute in 10..13 {
            assert!(contact.is_current(STALE_AFTER, Instant::now()), "{minute}");
            tokio::time::advance(Duration::from_secs(60)).await;
            contact.update(&counts(minute, 9), Instant::now());
        }
        assert!(!contact.is_current(STALE_AFTER, Instant::now()));
        contact.update(&counts(13, 13), Instant::now());
        assert!(contact.is_current(STALE_AFTER, Instant::now()));
    }
}
