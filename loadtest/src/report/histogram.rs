//! Histograms of latencies: the share that took longer, and quantiles.

/// Counts by upper bound, in rising order.
pub type Histogram = [(f64, u64)];

/// For each bound the share that took longer. The last bound, which nothing exceeds, is left out, because a logarithmic axis has no place
/// for 0.
pub fn slower(histogram: &Histogram) -> Vec<(f64, f64)> {
    let all = total(histogram);
    let mut left = all;
    let mut points = Vec::new();
    for (bound, count) in histogram {
        left = left.saturating_sub(*count);
        if left > 0 {
            points.push((*bound, left as f64 / all as f64));
        }
    }
    points
}

/// The bound that a share of the counts stays within; none for an empty histogram.
pub fn quantile(histogram: &Histogram, share: f64) -> Option<f64> {
    let wanted = (total(histogram) as f64 * share).ceil().max(1.0) as u64;
    let mut seen = 0;
    histogram.iter().find_map(|(bound, count)| {
        seen += count;
        (seen >= wanted).then_some(*bound)
    })
}

fn total(histogram: &Histogram) -> u64 {
    histogram.iter().map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: &Histogram = &[(1.0, 5), (2.0, 4), (8.0, 1)];

    #[test]
    fn each_bound_is_exceeded_by_what_is_left() {
        assert_eq!(slower(TEN), [(1.0, 0.5), (2.0, 0.1)]);
        assert_eq!(slower(&[]), []);
    }

    #[test]
    fn quantiles_are_bounds() {
        assert_eq!(quantile(TEN, 0.5), Some(1.0));
        assert_eq!(quantile(TEN, 0.51), Some(2.0));
        assert_eq!(quantile(TEN, 0.99), Some(8.0));
        assert_eq!(quantile(TEN, 0.0), Some(1.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
