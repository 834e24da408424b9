//! The cost of slow watchers for the others: latencies of the same other watchers in two runs, without slow watchers and with them.
//! Kubernetes' BenchmarkSlowWatcherTax calls the difference the tax.

use hdrhistogram::Histogram;

use crate::results::Results;

/// The limit of a slow dispatch in upstream's benchmark, µs.
const LATE_US: u64 = 5_000;

/// Adds the share of late events to the newest column.
pub fn late(results: &mut Results, latency: &Histogram<u64>) {
    let share = share(beyond(latency, LATE_US), latency.len());
    results.figure("events of the others later than 5 ms, %", share * 100.0);
}

/// Adds to the newest column, which is that of the run with slow watchers, the comparison with the run without.
pub fn tax(results: &mut Results, without: &Histogram<u64>, with: &Histogram<u64>) {
    let ratio = |quantile: f64| {
        let [a, b] = [without, with].map(|of| of.value_at_quantile(quantile) as f64);
        b / a.max(1.0)
    };
    results.figure("p50 of the others / without the slow", ratio(0.5));
    results.figure("p99 of the others / without the slow", ratio(0.99));
    results.figure("max of the others / without the slow", ratio(1.0));
    let events = share(with.len(), without.len());
    results.figure("events of the others / without the slow", events);
    let delayed = beyond(with, without.max());
    let name = "events of the others later than any without the slow";
    results.figure(name, delayed as f64);
    let per_million = share(delayed, with.len()) * 1e6;
    results.figure(&format!("{name}, per million"), per_million);
}

/// Number of values above this one, within the histogram's resolution.
fn beyond(latency: &Histogram<u64>, value: u64) -> u64 {
    let bound = latency.highest_equivalent(value);
    let values = latency.iter_recorded();
    values
        .filter(|one| one.value_iterated_to() > bound)
        .map(|one| one.count_at_value())
        .sum()
}

fn share(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

#[cfg(test)]
mod tests {
    //! Late events are counted, each once.

    use super::*;
    use crate::recorder::latencies;

    fn histogram(values: &[u64]) -> Histogram<u64> {
        let mut histogram = latencies();
        for value in values {
            histogram.record(*value).unwrap();
        }
        histogram
    }

    #[test]
    fn events_later_than_any_without_the_slow_are_counted() {
        let mut results = Results::new("slow");
        results.column("some");
        let with = histogram(&[800, 1_000, 9_000, 70_000]);
        tax(&mut results, &histogram(&[900, 1_000, 1_000, 9_000]), &with);
        late(&mut results, &with);
        let value = |row: &str| results.value(row, 0).unwrap();
        let late = "events of the others later than any without the slow";
        assert_eq!(value(late), 1.0);
        assert_eq!(value(&format!("{late}, per million")), 250_000.0);
        assert_eq!(value("events of the others later than 5 ms, %"), 50.0);
        assert_eq!(value("events of the others / without the slow"), 1.0);
        assert!((value("max of the others / without the slow") - 70.0 / 9.0).abs() < 0.02);
    }
}
