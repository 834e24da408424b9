//! Counters of one swarm thread: latencies, events, bytes, ends of streams.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;

use crate::results::Results;
use crate::texts::Texts;
use crate::wire::event::WriteTime;

/// Longer latencies count as this one.
const LATENCY_MAX: Duration = Duration::from_secs(300);
/// Number of different messages that are kept; the first ones show the cause.
const MESSAGES_MAX: usize = 5;

/// End of a request that was refused with 429 and Retry-After.
pub const SHED: &str = "429 with Retry-After";
/// End of a request that was refused with 429 without Retry-After.
pub const SHED_SILENTLY: &str = "429 without Retry-After";

/// End of a stream that the client has left.
pub const LEFT: &str = "left";

/// Orders from the scenario to all threads of a swarm, and the threads' reports. All accesses are relaxed: every value stands alone, and
/// results are handed over by joining the threads.
#[derive(Debug, Default)]
pub struct Control {
    /// Orders the swarm to end.
    pub stop: AtomicBool,
    /// Slow clients are slow while this is set.
    pub stalled: AtomicBool,
    /// Latencies of objects written in [from, until) are counted; nanoseconds since the epoch.
    pub measure_from_ns: AtomicU64,
    /// See `measure_from_ns`.
    pub measure_until_ns: AtomicU64,
    /// Number of the round: clients of a herd wait for it before their next request.
    pub round: AtomicUsize,
    /// Clients whose first response has started.
    pub ready: AtomicUsize,
    /// Requests that clients have sent.
    pub requests: AtomicU64,
    /// Streams that slow clients have left to watch again.
    pub renewals: AtomicU64,
    pub delivered: AtomicU64,
    /// When the newest of them arrived, nanoseconds since the epoch.
    pub last_delivery_ns: AtomicU64,
    /// Body bytes delivered so far.
    pub bytes: AtomicU64,
    /// How often a thread read more than bookmarks. Bookmarks of thousands of watches never stop, so they do not show whether events still
    /// arrive.
    pub arrivals: AtomicU64,
    /// Orders that the clients have carried out (rounds ended, goal reached); each thread updates its own share.
    pub progress: AtomicUsize,
    /// Open watches that have not reached the goal; each thread updates its own share.
    pub behind: AtomicUsize,
    /// Number of versions that the last of them is behind; the reader resets it.
    pub behind_by: AtomicU64,
    /// How often a thread polled and found nothing to read. Silence counts only while threads poll.
    pub empty_looks: AtomicU64,
}

impl Control {
    /// Starts the measured window: latencies of objects written from now on are counted.
    pub fn measure_from_now(&self) {
        self.measure_until_ns.store(u64::MAX, Ordering::Relaxed);
        self.measure_from_ns.store(now_ns(), Ordering::Relaxed);
    }

    /// Adds what a thread has read since its last report.
    pub fn add(&self, arrived: &Arrivals) {
        if arrived.events > 0 {
            self.delivered.fetch_add(arrived.events, Ordering::Relaxed);
            self.last_delivery_ns
                .fetch_max(arrived.last_ns, Ordering::Relaxed);
        }
        if arrived.bytes > 0 {
            self.bytes.fetch_add(arrived.bytes, Ordering::Relaxed);
        }
        if arrived.is_more_than_bookmarks() {
            self.arrivals.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn measure_until_now(&self) {
        self.measure_until_ns.store(now_ns(), Ordering::Relaxed);
    }
}

/// What a thread has read in some time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Arrivals {
    pub events: u64,
    pub bookmarks: u64,
    /// Body bytes.
    pub bytes: u64,
    /// When the last event was decoded, nanoseconds since the epoch.
    pub last_ns: u64,
}

impl Arrivals {
    /// Whether it was more than bookmarks: events, or a part of one.
    fn is_more_than_bookmarks(self) -> bool {
        self.bytes > 0 && (self.events > 0 || self.bookmarks == 0)
    }
}

/// Nanoseconds since the epoch, by a clock that is never set: the wall clock's time at the first call, plus the time since. Processes that
/// start within one run agree, and setting the wall clock during the run changes no latency.
pub fn now_ns() -> u64 {
    static BEGINNING: LazyLock<(Duration, Instant)> = LazyLock::new(|| {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        (wall.unwrap_or_default(), Instant::now())
    });
    let (wall, started) = &*BEGINNING;
    u64::try_from((*wall + started.elapsed()).as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug, Clone)]
pub struct Recorder {
    /// Time from the sending of a write to its event, microseconds.
    pub latency: Histogram<u64>,
    /// Time from when the write was due; it includes the time that the writes of a slow writer waited for each other.
    pub latency_from_due: Histogram<u64>,
    pub events: u64,
    /// Body bytes.
    pub bytes: u64,
    pub bookmarks: u64,
    /// The newest version that any watcher of this thread has received.
    pub newest_version: u64,
    /// Why streams and connections ended, and how often.
    pub ends: BTreeMap<String, u64>,
    /// The first few error messages.
    pub messages: Texts,
    now_ns: u64,
    window: (u64, u64),
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            latency: latencies(),
            latency_from_due: latencies(),
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
    /// Reads the clock and the measured window before the bytes of one connection are processed.
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

    /// Counts a decoded event, and reads the clock: the time to decrypt and decode earlier events of the same piece is part of the latency.
    pub fn event(&mut self, version: u64) {
        self.events += 1;
        self.newest_version = self.newest_version.max(version);
        self.now_ns = now_ns();
    }

    /// Records the latency of the newest event, if its write was sent in the measured window.
    pub fn record_latency(&mut self, write: WriteTime) {
        self.record_latency_at(write, self.now_ns);
    }

    /// Like [`Self::record_latency`], for a client that knew of the write at this time.
    pub fn record_latency_at(&mut self, write: WriteTime, known_ns: u64) {
        if write.sent_ns >= self.window.0 && write.sent_ns < self.window.1 {
            let us = |since_ns: u64| known_ns.saturating_sub(since_ns) / 1_000;
            let (latency, from_due) = (us(write.sent_ns), us(write.due_ns()));
            self.latency.saturating_record(latency);
            self.latency_from_due.saturating_record(from_due);
        }
    }

    /// The counters so far, for [`Self::since`].
    pub fn so_far(&self) -> Arrivals {
        Arrivals {
            events: self.events,
            bookmarks: self.bookmarks,
            bytes: self.bytes,
            last_ns: self.now_ns,
        }
    }

    /// The difference to earlier counters.
    pub fn since(&self, then: &Arrivals) -> Arrivals {
        Arrivals {
            events: self.events - then.events,
            bookmarks: self.bookmarks - then.bookmarks,
            bytes: self.bytes - then.bytes,
            last_ns: self.now_ns,
        }
    }

    /// Counts an end by its cause.
    pub fn end(&mut self, cause: &str) {
        match self.ends.get_mut(cause) {
            Some(count) => *count += 1,
            None => drop(self.ends.insert(cause.to_owned(), 1)),
        }
    }

    /// Counts a request that the server refused for lack of capacity.
    pub fn shed(&mut self, says_when: bool) {
        self.end(if says_when { SHED } else { SHED_SILENTLY });
    }

    /// Keeps a message, if it is one of the first.
    pub fn message(&mut self, text: &str) {
        self.messages.add("", text);
    }

    /// Keeps the body of a refusal.
    pub fn refusal(&mut self, status: u16, data: &[u8]) {
        let said = String::from_utf8_lossy(&data[..data.len().min(200)]);
        self.message(&format!("HTTP {status}: {said}"));
    }

    /// Notes why streams and connections ended, and the messages.
    pub fn note_ends(&self, results: &mut Results, name: &str) {
        for (cause, count) in &self.ends {
            results.note(format!("{name}: {cause}: {count}"));
        }
        for message in self.messages.lines() {
            results.note(format!("{name}: {message}"));
        }
    }

    pub fn merge(&mut self, other: &Self) {
        // The bounds are equal, so this cannot fail.
        let _ = self.latency.add(&other.latency);
        let _ = self.latency_from_due.add(&other.latency_from_due);
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
    //! Latencies count from both moments.

    use super::*;

    #[test]
    fn a_late_write_counts_from_when_it_was_due_too() {
        let control = Control::default();
        control.measure_from_now();
        let mut recorder = Recorder::default();
        recorder.tick(&control);
        let sent_ns = now_ns();
        recorder.event(1);
        recorder.record_latency(WriteTime {
            sent_ns,
            late_ns: 3_000_000_000,
        });
        let least = recorder.latency_from_due.min();
        assert!(recorder.latency.max() < least && least >= 2_990_000);
    }

    #[test]
    fn bookmarks_alone_are_no_sign_that_events_still_come() {
        let control = Control::default();
        let arrived = |events, bookmarks, bytes| Arrivals {
            events,
            bookmarks,
            bytes,
            last_ns: 0,
        };
        // Nothing; a bookmark; a part of an event; an event and a bookmark.
        for (of, arrivals) in [
            (arrived(0, 0, 0), 0),
            (arrived(0, 1, 90), 0),
            (arrived(0, 0, 90), 1),
            (arrived(1, 1, 400), 2),
        ] {
            control.add(&of);
            assert_eq!(control.arrivals.load(Ordering::Relaxed), arrivals);
        }
        assert_eq!(control.bytes.load(Ordering::Relaxed), 580);
    }
}
