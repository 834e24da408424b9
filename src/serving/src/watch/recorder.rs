//! What is recorded about watches.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::cache::Arrival;
use crate::metrics::WatchEnd;
use crate::transport::stall;

/// Why a watch ended that is dropped before its own end.
pub(crate) fn end_of_dropped() -> WatchEnd {
    match stall::is_cut() {
        true => WatchEnd::Stalled,
        false => WatchEnd::ClientGone,
    }
}

/// The totals of a stream, recorded once at its end.
#[derive(Clone, Copy, Debug)]
pub struct WatchTotals {
    /// Why it ended.
    pub end: WatchEnd,
    /// The address of the client, if it is known.
    pub client: Option<IpAddr>,
    /// Number of events, without bookmarks.
    pub events: u64,
    /// Number of bytes of event frames.
    pub bytes: u64,
}

/// Records what watches deliver; the composition root implements it with metrics, and `()` records nothing.
pub trait WatchRecorder: Send + Sync + std::fmt::Debug {
    /// Called once per stream, at its start.
    fn started(&self) {}
    /// Called once per stream that starts with a catch-up.
    fn caught_up(&self) {}
    /// Called when events are sent, with their number and length.
    fn delivered(&self, _events: u64, _bytes: u64) {}
    /// Called when events or bookmarks are sent as gzip, with their length before and after.
    fn compressed(&self, _before: u64, _after: u64) {}
    /// Called when a batch is sent that was published while the stream was open, with the time since its arrival and the number
    /// of clients. For a client that is behind and reads the history, called once per frame, for the frame's oldest event.
    fn delayed(&self, _by: Duration, _clients: u64) {}
    /// Called like [`Self::delayed`], if it is known when one of the events was written, with the time since then.
    fn aged(&self, _by: Duration, _clients: u64) {}
    /// Called once per stream, at its end.
    fn ended(&self, _totals: WatchTotals) {}

    /// Records a watch that gets 410 as its first event.
    fn expired_at_start(&self) {}

    /// Records that a batch is sent to `clients` at `now`.
    fn late(&self, arrival: Arrival, now: Instant, clients: u64) {
        let by = now.saturating_duration_since(arrival.at);
        self.delayed(by, clients);
        if let Some(age) = arrival.age {
            self.aged(by + Duration::from(age), clients);
        }
    }
}

impl WatchRecorder for () {}

/// Of the events in a frame from the history: the oldest one, and the oldest one whose age is known.
#[derive(Debug, Default)]
pub(super) struct OldestArrivals {
    first: Option<Arrival>,
    aged: Option<Arrival>,
}

impl OldestArrivals {
    /// Adds an event; events come in order.
    pub(super) fn add(&mut self, arrival: Arrival) {
        self.first.get_or_insert(arrival);
        if arrival.age.is_some() {
            self.aged.get_or_insert(arrival);
        }
    }

    /// Records that the frame is sent to one client. Asks for the time only if it has events.
    pub(super) fn record(self, recorder: &dyn WatchRecorder, now: impl FnOnce() -> Instant) {
        let Some(first) = self.first else {
            return;
        };
        let now = now();
        recorder.delayed(now.saturating_duration_since(first.at), 1);
        if let Some(Arrival { at, age: Some(age) }) = self.aged {
            recorder.aged(now.saturating_duration_since(at) + Duration::from(age), 1);
        }
    }
}
