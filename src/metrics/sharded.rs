//! Counters and histograms for the hot path: each thread adds to cache lines of its own, and a scrape sums them.
//!
//! A shared counter that two threads increment costs some 30 ns, one with its own line about 5 ns. The price is memory:
//! a line per shard and counter, so only what is counted per event is counted here.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use prometheus::core::{Collector, Desc};
use prometheus::proto;

/// Threads beyond this share lines, which is correct and merely slower. 32 lines of 128 bytes are 4 KiB a counter.
const SHARDS_MAX: usize = 32;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A number for this thread, given out in turn, so that threads spread evenly over the shards.
fn thread_number() -> usize {
    THREAD.with(|number| {
        number.get().unwrap_or_else(|| {
            // Relaxed: only distinctness matters, nothing is published with it.
            let new = THREADS.fetch_add(1, Ordering::Relaxed);
            number.set(Some(new));
            new
        })
    })
}

/// A counter that threads add to without disturbing each other. Clones are the same counter.
#[derive(Clone, Debug)]
pub struct ShardedCounter {
    /// A power of two of them.
    shards: Arc<[CachePadded<AtomicU64>]>,
}

fn shard_count() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    cpus.next_power_of_two().min(SHARDS_MAX)
}

impl ShardedCounter {
    /// Adds `n`. Wraps after 2^64, as no process lives to see.
    pub fn add(&self, n: u64) {
        let shard = thread_number() & (self.shards.len() - 1);
        // Relaxed: a scrape wants a recent sum, not an order among counters.
        self.shards[shard].fetch_add(n, Ordering::Relaxed);
    }

    /// The sum over all threads; increments that run meanwhile may or may not be in it.
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

/// Upper bounds of a histogram's buckets.
pub(super) const BOUNDS: usize = 16;

/// A histogram of durations that threads observe without disturbing each other. Clones are the same histogram.
#[derive(Clone, Debug)]
pub struct ShardedHistogram {
    /// Seconds, ascending.
    bounds: &'static [f64; BOUNDS],
    /// The same in nanoseconds.
    bounds_nanos: Arc<[u64; BOUNDS]>,
    /// A power of two of them.
    shards: Arc<[CachePadded<HistogramCells>]>,
}

#[derive(Debug, Default)]
struct HistogramCells {
    /// One for each bound.
    counts: [AtomicU64; BOUNDS],
    beyond: AtomicU64,
    nanos: AtomicU64,
}

impl ShardedHistogram {
    /// Counts one duration, `times` times.
    pub fn observe_many(&self, duration: Duration, times: u64) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let place = self.bounds_nanos.partition_point(|bound| *bound < nanos);
        let tallies = &self.shards[thread_number() & (self.shards.len() - 1)];
        let count = tallies.counts.get(place).unwrap_or(&tallies.beyond);
        // Relaxed: as in `ShardedCounter::add`. Count and sum may differ by what is observed meanwhile.
        count.fetch_add(times, Ordering::Relaxed);
        tallies
            .nanos
            .fetch_add(nanos.wrapping_mul(times), Ordering::Relaxed);
    }

    /// How many were observed.
    #[must_use]
    pub fn count(&self) -> u64 {
        let counts = |tallies: &CachePadded<HistogramCells>| {
            let within = tallies.counts.iter();
            within
                .chain([&tallies.beyond])
                .map(|count| count.load(Ordering::Relaxed))
                .sum::<u64>()
        };
        // Relaxed: as in `observe_many`.
        self.shards.iter().map(counts).sum()
    }

    fn sum_of(&self, tally: impl Fn(&HistogramCells) -> &AtomicU64) -> u64 {
        // Relaxed: as in `observe_many`.
        let loaded = self
            .shards
            .iter()
            .map(|shard| tally(shard).load(Ordering::Relaxed));
        loaded.fold(0, u64::wrapping_add)
    }
}

/// What a family has one of for each resource.
pub(super) trait Sharded: Clone + Send + Sync {
    /// What all of a family have in common.
    type Shape: Copy + Send + Sync;
    const TYPE: proto::MetricType;

    fn make(shape: Self::Shape) -> Self;

    fn write(&self, metric: &mut proto::Metric);
}

impl Sharded for ShardedCounter {
    type Shape = ();
    const TYPE: proto::MetricType = proto::MetricType::COUNTER;

    fn make((): ()) -> Self {
        Self {
            shards: (0..shard_count()).map(|_| CachePadded::default()).collect(),
        }
    }

    fn write(&self, metric: &mut proto::Metric) {
        let mut counter = proto::Counter::default();
        counter.set_value(as_real(self.sum()));
        metric.set_counter(counter);
    }
}

impl Sharded for ShardedHistogram {
    type Shape = &'static [f64; BOUNDS];
    const TYPE: proto::MetricType = proto::MetricType::HISTOGRAM;

    fn make(bounds: Self::Shape) -> Self {
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
        let mut so_far = 0;
        let buckets = self.bounds.iter().enumerate().map(|(place, bound)| {
            so_far += self.sum_of(|tallies| &tallies.counts[place]);
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(so_far);
            bucket
        });
        let buckets = buckets.collect();
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(so_far + self.sum_of(|tallies| &tallies.beyond));
        histogram.set_sample_sum(as_real(self.sum_of(|tallies| &tallies.nanos)) / 1e9);
        metric.set_histogram(histogram);
    }
}

#[expect(clippy::cast_precision_loss, reason = "the text format holds doubles")]
fn as_real(number: u64) -> f64 {
    number as f64
}

/// The counters of one metric, one a resource.
pub(super) type ShardedCounters = ShardedFamily<ShardedCounter>;
/// The histograms of one metric, one a resource.
pub(super) type ShardedHistograms = ShardedFamily<ShardedHistogram>;

/// One metric, one series a resource, as a scrape sees it. Clones are the same metric.
#[derive(Clone, Debug)]
pub(super) struct ShardedFamily<S: Sharded> {
    desc: Arc<Desc>,
    shape: S::Shape,
    /// Locked when a resource is added and when somebody scrapes, never while counting.
    series: Arc<Mutex<Vec<Series<S>>>>,
}

#[derive(Debug)]
struct Series<S> {
    values: Vec<String>,
    of: S,
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

    /// The series with these label values, made when first asked for.
    pub(super) fn of(&self, values: &[&str]) -> S {
        // A panic elsewhere cannot leave half a series here, so a poisoned list is as good as any.
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = series.iter().find(|series| series.values == values) {
            return found.of.clone();
        }
        let made = S::make(self.shape);
        series.push(Series {
            values: values.iter().map(|&value| value.to_owned()).collect(),
            of: made.clone(),
        });
        made
    }

    /// Takes a series off the page. Handles given out before no longer show.
    pub(super) fn forget(&self, values: &[&str]) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.retain(|series| series.values != values);
    }
}

impl<S: Sharded> Collector for ShardedFamily<S> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics = series.iter().map(|series| {
            let mut labels: Vec<proto::LabelPair> = self
                .desc
                .variable_labels
                .iter()
                .zip(&series.values)
                .map(pair)
                .collect();
            labels.sort_by(|a, b| a.name().cmp(b.name()));
            let mut metric = proto::Metric::from_label(labels);
            series.of.write(&mut metric);
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

fn pair((name, value): (&String, &String)) -> proto::LabelPair {
    let mut pair = proto::LabelPair::default();
    pair.set_name(name.clone());
    pair.set_value(value.clone());
    pair
}
