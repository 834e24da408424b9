//! Counters and histograms for the hot path: each thread adds to its own cache lines, and a scrape sums them.
//!
//! Incrementing a counter that two threads share costs about 30 ns, and about 5 ns if each thread has its own cache line. This takes
//! a cache line per shard and counter, so only metrics that change with each event are sharded.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto;

/// More threads than this share cache lines, which is slower but still correct. 32 lines of 128 bytes are 4 KiB per counter.
const SHARDS_MAX: usize = 32;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A number for this thread. Numbers are consecutive, so threads spread evenly over the shards.
fn thread_number() -> usize {
    THREAD.with(|number| {
        number.get().unwrap_or_else(|| {
            // Relaxed: the numbers only have to be distinct; no other memory depends on them.
            let new = THREADS.fetch_add(1, Ordering::Relaxed);
            number.set(Some(new));
            new
        })
    })
}

/// A counter to which threads add without contention. Clones share the same counter.
#[derive(Clone, Debug)]
pub struct ShardedCounter {
    /// The number of shards is a power of two.
    shards: Arc<[CachePadded<AtomicU64>]>,
}

fn shard_count() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    cpus.next_power_of_two().min(SHARDS_MAX)
}

impl ShardedCounter {
    /// Adds `n`. Wraps at 2^64.
    pub fn add(&self, n: u64) {
        let shard = thread_number() & (self.shards.len() - 1);
        // Relaxed: a scrape needs a recent sum, and no order between counters.
        self.shards[shard].fetch_add(n, Ordering::Relaxed);
    }

    /// The sum over all threads. Concurrent increments may or may not be included.
    #[must_use]
    pub fn sum(&self) -> u64 {
        // Relaxed: as in `add`.
        let shards = self
            .shards
            .iter()
            .map(|shard| shard.load(Ordering::Relaxed));
        shards.fold(0, u64::wrapping_add)
    }
}

/// Number of bounds of a histogram. It has one bucket more, for durations beyond the last bound.
pub(super) const BOUND_COUNT: usize = 16;

/// A histogram of durations to which threads add without contention. Clones share the same histogram.
#[derive(Clone, Debug)]
pub struct ShardedHistogram {
    /// Upper bounds of the buckets, in seconds, ascending.
    bounds: &'static [f64; BOUND_COUNT],
    /// The same bounds in nanoseconds.
    bounds_nanos: Arc<[u64; BOUND_COUNT]>,
    /// The number of shards is a power of two.
    shards: Arc<[CachePadded<HistogramCells>]>,
}

#[derive(Debug, Default)]
struct HistogramCells {
    /// Durations in each bucket.
    counts: [AtomicU64; BOUND_COUNT],
    /// Durations beyond the last bound.
    beyond: AtomicU64,
    /// Sum of all durations, in nanoseconds.
    nanos: AtomicU64,
}

impl ShardedHistogram {
    /// Counts one duration, `times` times.
    pub fn observe_many(&self, duration: Duration, times: u64) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = self.bounds_nanos.partition_point(|bound| *bound < nanos);
        let cells = &self.shards[thread_number() & (self.shards.len() - 1)];
        let count = cells.counts.get(bucket).unwrap_or(&cells.beyond);
        // Relaxed: as in `ShardedCounter::add`. A concurrent scrape may read the count without the sum.
        count.fetch_add(times, Ordering::Relaxed);
        cells
            .nanos
            .fetch_add(nanos.wrapping_mul(times), Ordering::Relaxed);
    }

    /// Number of observed durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        // Relaxed: as in `observe_many`.
        let counts = |cells: &CachePadded<HistogramCells>| {
            let within = cells.counts.iter();
            within
                .chain([&cells.beyond])
                .map(|count| count.load(Ordering::Relaxed))
                .sum::<u64>()
        };
        self.shards.iter().map(counts).sum()
    }

    fn sum_of(&self, cell: impl Fn(&HistogramCells) -> &AtomicU64) -> u64 {
        // Relaxed: as in `observe_many`.
        let loaded = self
            .shards
            .iter()
            .map(|shard| cell(shard).load(Ordering::Relaxed));
        loaded.fold(0, u64::wrapping_add)
    }
}

/// A sharded metric: a family has one for each resource.
pub(super) trait Sharded: Clone + Send + Sync {
    /// Properties that all members of a family share, such as the bounds of a histogram.
    type Shape: Copy + Send + Sync;
    const TYPE: proto::MetricType;

    fn new_with(shape: Self::Shape) -> Self;

    fn write(&self, metric: &mut proto::Metric);
}

impl Sharded for ShardedCounter {
    type Shape = ();
    const TYPE: proto::MetricType = proto::MetricType::COUNTER;

    fn new_with((): ()) -> Self {
        Self {
            shards: (0..shard_count()).map(|_| CachePadded::default()).collect(),
        }
    }

    fn write(&self, metric: &mut proto::Metric) {
        let mut counter = proto::Counter::default();
        counter.set_value(as_double(self.sum()));
        metric.set_counter(counter);
    }
}

impl Sharded for ShardedHistogram {
    type Shape = &'static [f64; BOUND_COUNT];
    const TYPE: proto::MetricType = proto::MetricType::HISTOGRAM;

    fn new_with(bounds: Self::Shape) -> Self {
        let nanos = |bound: f64| {
            u64::try_from(Duration::from_secs_f64(bound).as_nanos()).unwrap_or(u64::MAX)
        };
        Self {
            bounds,
            bounds_nanos: Arc::new(bounds.map(nanos)),
            shards: (0..shard_count()).map(|_| CachePadded::default()).collect(),
        }
    }

    fn write(&self, metric: &mut proto::Metric) {
        let mut cumulative = 0;
        let buckets = self.bounds.iter().enumerate().map(|(index, bound)| {
            cumulative += self.sum_of(|cells| &cells.counts[index]);
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(cumulative);
            bucket
        });
        let buckets = buckets.collect();
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(cumulative + self.sum_of(|cells| &cells.beyond));
        histogram.set_sample_sum(as_double(self.sum_of(|cells| &cells.nanos)) / 1e9);
        metric.set_histogram(histogram);
    }
}

#[expect(clippy::cast_precision_loss, reason = "the text format holds doubles")]
fn as_double(number: u64) -> f64 {
    number as f64
}

/// The counters of one metric, one per resource.
pub(super) type ShardedCounters = ShardedFamily<ShardedCounter>;
/// The histograms of one metric, one per resource.
pub(super) type ShardedHistograms = ShardedFamily<ShardedHistogram>;

/// One metric with a series per resource. Clones share the same metric.
#[derive(Clone, Debug)]
pub(super) struct ShardedFamily<S: Sharded> {
    desc: Arc<Desc>,
    shape: S::Shape,
    /// Locked when a series is added or removed and during a scrape, but never while counting. Has at most one series per resource: the
    /// caller removes it with the resource.
    series: Arc<Mutex<Vec<Series<S>>>>,
}

#[derive(Debug)]
struct Series<S> {
    values: Vec<String>,
    metric: S,
}

impl<S: Sharded> ShardedFamily<S> {
    pub(super) fn new(
        name: &str,
        help: &str,
        labels: &[&str],
        shape: S::Shape,
    ) -> Result<Self, prometheus::Error> {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let desc = Desc::new(
            name.to_owned(),
            help.to_owned(),
            labels,
            std::collections::HashMap::new(),
        )?;
        Ok(Self {
            desc: Arc::new(desc),
            shape,
            series: Arc::default(),
        })
    }

    /// The series with these label values. The first call creates it. Linear in the number of series, so handles are resolved once per
    /// resource.
    pub(super) fn of(&self, values: &[&str]) -> S {
        let mut series = self.series.lock();
        if let Some(found) = series.iter().find(|series| series.values == values) {
            return found.metric.clone();
        }
        let metric = S::new_with(self.shape);
        series.push(Series {
            values: values.iter().map(|&value| value.to_owned()).collect(),
            metric: metric.clone(),
        });
        metric
    }

    /// Removes a series. Its existing handles still count, but a scrape no longer reports them.
    pub(super) fn forget(&self, values: &[&str]) {
        let mut series = self.series.lock();
        series.retain(|series| series.values != values);
    }
}

impl<S: Sharded> Collector for ShardedFamily<S> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let series = self.series.lock();
        let metrics = series.iter().map(|series| {
            let mut labels: Vec<proto::LabelPair> = self
                .desc
                .variable_labels
                .iter()
                .zip(&series.values)
                .map(label_pair)
                .collect();
            labels.sort_by(|a, b| a.name().cmp(b.name()));
            let mut metric = proto::Metric::from_label(labels);
            series.metric.write(&mut metric);
            metric
        });
        let mut family = proto::MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(S::TYPE);
        family.set_metric(metrics.collect());
        vec![family]
    }
}

fn label_pair((name, value): (&String, &String)) -> proto::LabelPair {
    let mut pair = proto::LabelPair::default();
    pair.set_name(name.clone());
    pair.set_value(value.clone());
    pair
}
