//! A histogram of latencies in microseconds, with an error of less than 1 %. Pure.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency that is told apart from longer ones, about 18 minutes.
const MICROS_MAX: u64 = 1 << 30;
/// Significant digits of the latencies that are kept.
const DIGITS: u8 = 2;

/// Number of latencies of each length.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    #[expect(clippy::expect_used, reason = "the bounds are constants")]
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, MICROS_MAX, DIGITS)
            .expect("invariant: hdrhistogram accepts these bounds");
        Self { histogram }
    }
}

impl Latencies {
    /// Adds a latency in microseconds.
    pub(super) fn add(&mut self, micros: u64) {
        self.histogram.saturating_record(micros);
    }

    /// Adds the counts of another histogram.
    pub(super) fn merge(&mut self, other: &Self) {
        // Cannot fail: both histograms have the same bounds.
        let _ = self.histogram.add(&other.histogram);
    }

    /// The latencies that were added since `earlier`, an older state of this histogram.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        // Cannot fail: an older state has the same bounds and no larger counts.
        let _ = since.histogram.subtract(&earlier.histogram);
        since
    }

    /// The latency that `permille` of 1,000 latencies do not exceed; `None` if the histogram is empty.
    pub(super) fn permille(&self, permille: u32) -> Option<Duration> {
        let quantile = f64::from(permille) / 1000.0;
        (!self.histogram.is_empty())
            .then(|| Duration::from_micros(self.histogram.value_at_quantile(quantile)))
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

    #[test]
    fn a_latency_beyond_the_bounds_counts_as_the_longest() {
        let mut latencies = Latencies::default();
        latencies.add(u64::MAX);
        let longest = latencies.permille(1000).unwrap();
        assert!(longest >= Duration::from_micros(MICROS_MAX));
        assert_eq!(latencies.since(&latencies), Latencies::default());
    }
}
