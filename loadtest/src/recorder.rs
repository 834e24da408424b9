//! What one swarm thread counts: latencies, events, bytes, ends of streams.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::texts::Texts;

/// Longest latency that is told apart from longer ones.
const LATENCY_MAX: Duration = Duration::from_secs(300);
/// Different messages kept; the first ones tell the story.
const MESSAGES_MAX: usize = 5;

/// A request was refused with 429, and the client told when to come again.
pub const SHED: &str = "429 with Retry-After";
/// A request was refused with 429 and no word of when to come again.
pub const SHED_SILENTLY: &str = "429 without Retry-After";

/// A client wanted no more of a stream.
pub const LEFT: &str = "left";

/// Orders from the scenario to all threads of a swarm, and what they answer. All accesses are relaxed: every value stands alone,
/// and results are handed over by joining the threads.
#[derive(Debug, Default)]
pub struct Control {
    /// The swarm shall end now.
    pub stop: AtomicBool,
    /// Slow clients are slow while this holds.
    pub stalled: AtomicBool,
    /// Latencies of objects written in [from, until) count; nanoseconds since the epoch.
    pub measure_from_ns: AtomicU64,
    /// See `measure_from_ns`.
    pub measure_until_ns: AtomicU64,
    /// Clients wait for this number before their next request (the herd).
    pub round: AtomicUsize,
    /// Clients whose (first) response has begun.
    pub ready: AtomicUsize,
    /// Events delivered so far.
    pub delivered: AtomicU64,
    /// When the newest of them came, nanoseconds since the epoch.
    pub last_delivery_ns: AtomicU64,
    /// Body bytes delivered so far.
    pub bytes: AtomicU64,
    /// Orders carried out by all clients (rounds ended, goal reached); each thread keeps its own share up to date.
    pub progress: AtomicUsize,
    /// Open watches that have not reached the goal; each thread keeps its own share up to date.
    pub behind: AtomicUsize,
    /// By how many versions the last of them is behind; whoever looks resets it.
    pub behind_by: AtomicU64,
    /// How often a thread looked and found nothing to read. While nobody looks, that nothing arrives means nothing.
    pub empty_looks: AtomicU64,
}

impl Control {
    /// Lets latencies count for objects written from now on.
    pub fn measure_from_now(&self) {
        self.measure_until_ns.store(u64::MAX, Ordering::Relaxed);
        self.measure_from_ns.store(now_ns(), Ordering::Relaxed);
    }

    /// Adds what a thread has delivered since it last said so.
    pub fn add_delivered(&self, events: u64, bytes: u64, now_ns: u64) {
        if events > 0 {
            self.delivered.fetch_add(events, Ordering::Relaxed);
            self.last_delivery_ns.fetch_max(now_ns, Ordering::Relaxed);
        }
        if bytes > 0 {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
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
#[derive(Debug, Clone)]
pub struct Recorder {
    /// End-to-end latencies in microseconds.
    pub latency: Histogram<u64>,
    /// Data events.
    pub events: u64,
    /// Body bytes.
    pub bytes: u64,
    /// Bookmarks.
    pub bookmarks: u64,
    /// The newest version that any watcher of this thread has seen.
    pub newest_version: u64,
    /// Why streams and connections ended, and how often.
    pub ends: BTreeMap<String, u64>,
    /// The first few error messages.
    pub messages: Texts,
    now_ns: u64,
    window: (u64, u64),
}

/// A recorder's counts as they go from one process to another.
#[derive(Debug, Serialize, Deserialize)]
pub struct Counts {
    /// Microseconds, and how many of them there were.
    latency: Vec<(u64, u64)>,
    events: u64,
    bytes: u64,
    bookmarks: u64,
    ends: BTreeMap<String, u64>,
    messages: Texts,
}

impl From<&Recorder> for Counts {
    fn from(recorder: &Recorder) -> Self {
        let recorded = recorder.latency.iter_recorded();
        Self {
            latency: recorded
                .map(|value| (value.value_iterated_to(), value.count_at_value()))
                .collect(),
            events: recorder.events,
            bytes: recorder.bytes,
            bookmarks: recorder.bookmarks,
            ends: recorder.ends.clone(),
            messages: recorder.messages.clone(),
        }
    }
}

impl From<&Counts> for Recorder {
    fn from(counts: &Counts) -> Self {
        let mut recorder = Self {
            events: counts.events,
            bytes: counts.bytes,
            bookmarks: counts.bookmarks,
            ends: counts.ends.clone(),
            messages: counts.messages.clone(),
            ..Self::default()
        };
        for (value, count) in &counts.latency {
            recorder.latency.saturating_record_n(*value, *count);
        }
        recorder
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            latency: latencies(),
            events: 0,
            bytes: 0,
            bookmarks: 0,
            newest_version: 0,
            ends: BTreeMap::new(),
            messages: Texts::new(MESSAGES_MAX),
            now_ns: 0,
            window: (0, 0),
        }
    }
}

/// An empty histogram of microseconds.
pub fn latencies() -> Histogram<u64> {
    let max = u64::try_from(LATENCY_MAX.as_micros()).unwrap_or(u64::MAX);
    Histogram::new_with_bounds(1, max, 3)
        .expect("invariant: the bounds are constants that hdrhistogram accepts")
}

impl Recorder {
    /// Reads the clock and the orders once for all that has just arrived on one connection.
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

    /// Counts a request that the server had no room for.
    pub fn shed(&mut self, says_when: bool) {
        self.end(if says_when { SHED } else { SHED_SILENTLY });
    }

    /// Keeps a message, if it is one of the first.
    pub fn message(&mut self, text: &str) {
        self.messages.add("", text);
    }

    /// Keeps what a refusal said.
    pub fn refusal(&mut self, status: u16, data: &[u8]) {
        let said = String::from_utf8_lossy(&data[..data.len().min(200)]);
        self.message(&format!("HTTP {status}: {said}"));
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
        self.messages.merge(&other.messages);
    }
}

#[cfg(test)]
mod tests {
    //! What one process counted is what another reads.

    use super::*;

    #[test]
    fn counts_survive_the_way_to_another_process() {
        let mut recorder = Recorder::default();
        recorder.end("left");
        recorder.events = 7;
        for value in [3, 3, 900, 70_000] {
            recorder.latency.record(value).unwrap();
        }
        let text = serde_json::to_string(&Counts::from(&recorder)).unwrap();
        let counts: Counts = serde_json::from_str(&text).unwrap();
        let read = Recorder::from(&counts);
        assert_eq!(read.latency, recorder.latency);
        assert_eq!((read.events, read.ends), (7, recorder.ends));
    }
}
