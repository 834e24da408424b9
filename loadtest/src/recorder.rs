//! What one swarm thread counts: latencies, events, bytes, ends of streams.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;

/// Longest latency that is told apart from longer ones.
const LATENCY_MAX: Duration = Duration::from_secs(300);
/// Messages kept per thread; the first ones tell the story.
const MESSAGES_MAX: usize = 5;

/// Orders from the scenario to all threads of a swarm, and what they answer. All accesses are relaxed: every value stands alone,
/// and results are handed over by joining the threads.
#[derive(Debug, Default)]
pub struct Control {
    /// The swarm shall end now.
    pub stop: AtomicBool,
    /// Clients made to stall do not read while this holds.
    pub stalled: AtomicBool,
    /// Latencies of objects written in [from, until) count; nanoseconds since the epoch.
    pub measure_from_ns: AtomicU64,
    /// See `measure_from_ns`.
    pub measure_until_ns: AtomicU64,
    /// Clients wait for this number before their next request (the herd).
    pub round: AtomicUsize,
    /// Version that all clients must reach; 0 while unknown.
    pub goal: AtomicU64,
    /// Clients whose (first) response has begun.
    pub ready: AtomicUsize,
    /// Events delivered so far.
    pub delivered: AtomicU64,
    /// Body bytes delivered so far.
    pub bytes: AtomicU64,
    /// Orders carried out by all clients (rounds ended, goal reached); each thread keeps its own share up to date.
    pub progress: AtomicUsize,
}

impl Control {
    /// Lets latencies count for objects written from now on.
    pub fn measure_from_now(&self) {
        self.measure_until_ns.store(u64::MAX, Ordering::Relaxed);
        self.measure_from_ns.store(now_ns(), Ordering::Relaxed);
    }

    /// Objects written later no longer count.
    pub fn measure_until_now(&self) {
        self.measure_until_ns.store(now_ns(), Ordering::Relaxed);
    }
}

/// Nanoseconds since the epoch.
pub fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        })
}

/// Counts of one thread.
#[derive(Debug)]
pub struct Recorder {
    /// End-to-end latencies in microseconds.
    pub latency: Histogram<u64>,
    /// Data events.
    pub events: u64,
    /// Body bytes.
    pub bytes: u64,
    /// Bookmarks.
    pub bookmarks: u64,
    /// Why streams and connections ended, and how often.
    pub ends: BTreeMap<String, u64>,
    /// The first few error messages.
    pub messages: Vec<String>,
    now_ns: u64,
    window: (u64, u64),
}

impl Default for Recorder {
    fn default() -> Self {
        let max = u64::try_from(LATENCY_MAX.as_micros()).unwrap_or(u64::MAX);
        let latency = Histogram::new_with_bounds(1, max, 3)
            .expect("invariant: the bounds are constants that hdrhistogram accepts");
        Self {
            latency,
            events: 0,
            bytes: 0,
            bookmarks: 0,
            ends: BTreeMap::new(),
            messages: Vec::new(),
            now_ns: 0,
            window: (0, 0),
        }
    }
}

impl Recorder {
    /// Reads the clock and the orders once for all that has just arrived.
    pub fn tick(&mut self, control: &Control) {
        self.now_ns = now_ns();
        self.window = (
            control.measure_from_ns.load(Ordering::Relaxed),
            control.measure_until_ns.load(Ordering::Relaxed),
        );
    }

    /// The clock as last read, nanoseconds since the epoch.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Counts the latency of an object written at this moment, if it is in the measured window.
    pub fn written_at(&mut self, written_at_ns: u64) {
        if written_at_ns >= self.window.0 && written_at_ns < self.window.1 {
            self.latency
                .saturating_record(self.now_ns.saturating_sub(written_at_ns) / 1_000);
        }
    }

    /// Counts an end by its cause.
    pub fn end(&mut self, cause: &str) {
        match self.ends.get_mut(cause) {
            Some(count) => *count += 1,
            None => drop(self.ends.insert(cause.to_owned(), 1)),
        }
    }

    /// Keeps one of the first messages.
    pub fn message(&mut self, text: impl FnOnce() -> String) {
        if self.messages.len() < MESSAGES_MAX {
            self.messages.push(text());
        }
    }

    /// Adds another thread's counts.
    pub fn merge(&mut self, other: &Self) {
        // Equal bounds: cannot fail.
        let _ = self.latency.add(&other.latency);
        self.events += other.events;
        self.bytes += other.bytes;
        self.bookmarks += other.bookmarks;
        for (cause, count) in &other.ends {
            *self.ends.entry(cause.clone()).or_default() += count;
        }
        let room = MESSAGES_MAX.saturating_sub(self.messages.len());
        self.messages
            .extend(other.messages.iter().take(room).cloned());
    }
}
