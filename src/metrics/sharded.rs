//! A counter for the hot path: each thread adds to a cache line of its own, and a scrape sums them.
//!
//! A shared counter that two threads increment costs some 30 ns, one with its own line about 5 ns. The price is memory:
//! a line per shard and counter, so only what is counted per event is counted here.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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

impl ShardedCounter {
    fn new() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = cpus.next_power_of_two().min(SHARDS_MAX);
        Self {
            shards: (0..count).map(|_| CachePadded::default()).collect(),
        }
    }

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

/// The counters of one metric, one a resource, as a scrape sees them. Clones are the same metric.
#[derive(Clone, Debug)]
pub(super) struct ShardedCounters {
    desc: Arc<Desc>,
    /// Locked when a resource is added and when somebody scrapes, never while counting.
    series: Arc<Mutex<Vec<Series>>>,
}

#[derive(Debug)]
struct Series {
    values: Vec<String>,
    counter: ShardedCounter,
}

impl ShardedCounters {
    pub(super) fn new(name: &str, help: &str, labels: &[&str]) -> Result<Self, prometheus::Error> {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let desc = Desc::new(
            name.to_owned(),
            help.to_owned(),
            labels,
            std::collections::HashMap::new(),
        )?;
        Ok(Self {
            desc: Arc::new(desc),
            series: Arc::default(),
        })
    }

    /// The counter with these label values, made when first asked for.
    pub(super) fn of(&self, values: &[&str]) -> ShardedCounter {
        // A panic elsewhere cannot leave half a series here, so a poisoned list is as good as any.
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = series.iter().find(|series| series.values == values) {
            return found.counter.clone();
        }
        let counter = ShardedCounter::new();
        series.push(Series {
            values: values.iter().map(|&value| value.to_owned()).collect(),
            counter: counter.clone(),
        });
        counter
    }
}

impl Collector for ShardedCounters {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics = series.iter().map(|series| {
            let mut counter = proto::Counter::default();
            #[expect(clippy::cast_precision_loss, reason = "the text format holds doubles")]
            counter.set_value(series.counter.sum() as f64);
            let mut labels: Vec<proto::LabelPair> = self
                .desc
                .variable_labels
                .iter()
                .zip(&series.values)
                .map(pair)
                .collect();
            labels.sort_by(|a, b| a.name().cmp(b.name()));
            let mut metric = proto::Metric::from_label(labels);
            metric.set_counter(counter);
            metric
        });
        let mut family = proto::MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(proto::MetricType::COUNTER);
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
