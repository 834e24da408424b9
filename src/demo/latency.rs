//! A histogram of latencies whose buckets grow with the latency, with an error of at most 1/16. Pure.

use std::time::Duration;

/// Each doubling of the latency is split into 2^`SPLIT_BITS` buckets.
const SPLIT_BITS: u32 = 4;
/// Number of doublings: up to 2^30 µs, about 18 minutes.
const DOUBLINGS: usize = 27;
const BUCKET_COUNT: usize = (DOUBLINGS + 1) << SPLIT_BITS;

/// Number of latencies in each bucket.
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
    /// Adds a latency in microseconds.
    pub(super) fn add(&mut self, micros: u64) {
        self.buckets[bucket(micros)] += 1;
    }

    /// Adds the counts of another histogram.
    pub(super) fn merge(&mut self, other: &Self) {
        for (own, other) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *own += other;
        }
    }

    /// The latencies that were added since `earlier`, an older state of this histogram.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (own, earlier) in since.buckets.iter_mut().zip(earlier.buckets.iter()) {
            *own = own.saturating_sub(*earlier);
        }
        since
    }

    /// The latency that `permille` of 1,000 latencies do not exceed; `None` if the histogram is empty.
    pub(super) fn permille(&self, permille: u64) -> Option<Duration> {
        let count: u64 = self.buckets.iter().sum();
        let rank = (count * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, here) in self.buckets.iter().enumerate() {
            seen += here;
            if seen >= rank {
                return Some(Duration::from_micros(upper_end(index)));
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

/// The largest latency that falls into a bucket, in microseconds.
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
            let found = one.permille(500).unwrap().as_micros();
            let (least, most) = (u128::from(micros), u128::from(micros + micros / 16));
            assert!((least..=most).contains(&found), "{micros}: {found}");
        }
    }

    #[test]
    fn shares_and_differences_are_told() {
        let mut latencies = Latencies::default();
        (0..99).for_each(|_| latencies.add(1));
        let before = latencies.clone();
        latencies.add(10);
        let at = |permille| latencies.permille(permille).unwrap().as_micros();
        assert_eq!((at(500), at(990), at(1000)), (1, 1, 10));
        let since = latencies.since(&before);
        assert_eq!(since.permille(1).unwrap().as_micros(), 10);
        assert_eq!(Latencies::default().permille(500), None);
    }
}
