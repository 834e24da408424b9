//! Whether the watches of roles and bindings are in contact with upstream. Reads no clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::informer::InformerCounts;

/// When upstream last proved what is held of each of the four kinds. Its watches carry a bookmark about every minute; while they do not,
/// the informers compare with a list.
pub(super) struct UpstreamContact([ContactRecord; 4]);

#[derive(Clone, Copy)]
struct ContactRecord {
    proofs: u64,
    at: Instant,
}

impl UpstreamContact {
    pub(super) fn new(now: Instant) -> Self {
        let record = ContactRecord { proofs: 0, at: now };
        Self([record; 4])
    }

    pub(super) fn update(&mut self, counts: &[InformerCounts; 4], now: Instant) {
        for (last, counts) in self.0.iter_mut().zip(counts) {
            if counts.proofs != last.proofs {
                *last = ContactRecord {
                    proofs: counts.proofs,
                    at: now,
                };
            }
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

    fn counts_with(proofs: u64) -> InformerCounts {
        let mut counts = InformerCounts::default();
        counts.proofs += proofs;
        counts
    }

    #[tokio::test(start_paused = true)]
    async fn roles_are_current_as_long_as_all_kinds_are_heard_of() {
        let mut contact = UpstreamContact::new(Instant::now());
        let counts = |proofs, last| {
            [
                counts_with(proofs),
                counts_with(proofs),
                counts_with(proofs),
                counts_with(last),
            ]
        };
        for minute in 1..10 {
            tokio::time::advance(Duration::from_secs(60)).await;
            contact.update(&counts(minute, minute), Instant::now());
            assert!(contact.is_current(STALE_AFTER, Instant::now()));
        }
        // One kind is not proven any more.
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
