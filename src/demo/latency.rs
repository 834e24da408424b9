//! Counts of latencies in buckets that grow with the latency: 1/16 of error at most. Keeps no clock.

use std::time::Duration;

/// Buckets of each doubling, as a power of two.
const SPLIT_BITS: u32 = 4;
/// Doublings: up to 2^30 µs, a quarter of an hour.
const DOUBLINGS: usize = 27;
const BUCKET_COUNT: usize = (DOUBLINGS + 1) << SPLIT_BITS;

/// How many latencies fell into each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Latencies {
    buckets: Box<[u64; BUCKET_COUNT]>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            buckets: Box::new([0; BUCKET_COUNT]),
        }
    }
}

impl Latencies {
    /// Counts one, in microseconds.
    pub(super) fn add(&mut self, micros: u64) {
        self.buckets[bucket(micros)] += 1;
    }

    /// Adds another's counts.
    pub(super) fn merge(&mut self, other: &Self) {
        for (own, other) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *own += other;
        }
    }

    /// What was counted since `earlier`, an older state of the same counts.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (own, earlier) in since.buckets.iter_mut().zip(earlier.buckets.iter()) {
            *own = own.saturating_sub(*earlier);
        }
        since
    }

    /// The latency that so many of a thousand do not exceed; none without any.
    pub(super) fn permille(&self, permille: u64) -> Option<Duration> {
        let count: u64 = self.buckets.iter().sum();
        let wanted = (count * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (at, here) in self.buckets.iter().enumerate() {
            seen += here;
            if seen >= wanted {
                return Some(Duration::from_micros(upper_end(at)));
            }
        }
        None
    }
}

fn bucket(micros: u64) -> usize {
    let doubling = (micros >> SPLIT_BITS)
        .checked_ilog2()
        .map_or(0, |log| log + 1);
    let split = micros >> doubling.saturating_sub(1);
    let within = usize::try_from(split).unwrap_or(usize::MAX) & ((1 << SPLIT_BITS) - 1);
    (((doubling as usize) << SPLIT_BITS) + within).min(BUCKET_COUNT - 1)
}

/// The largest latency of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let (doubling, within) = (
        bucket >> SPLIT_BITS,
        (bucket & ((1 << SPLIT_BITS) - 1)) as u64,
    );
    match doubling.checked_sub(1) {
        None => within,
        Some(shift) => (((1 << SPLIT_BITS) + within + 1) << shift) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_told_within_a_sixteenth() {
        for micros in (0..200).chain([1_000, 65_535, 65_536, 9_999_999]) {
            let mut one = Latencies::default();
            one.add(micros);
            let told = one.permille(500).unwrap().as_micros();
            let (least, most) = (u128::from(micros), u128::from(micros + micros / 16));
            assert!((least..=most).contains(&told), "{micros}: {told}");
        }
    }

    #[test]
    fn shares_and_differences_are_told() {
        let mut latencies = Latencies::default();
        (0..99).for_each(|_| latencies.add(1));
        let before = latencies.clone();
        latencies.add(10);
        let told = |permille| latencies.permille(permille).unwrap().as_micros();
        assert_eq!((told(500), told(990), told(1000)), (1, 1, 10));
        let since = latencies.since(&before);
        assert_eq!(since.permille(1).unwrap().as_micros(), 10);
        assert_eq!(Latencies::default().permille(500), None);
    }
}
