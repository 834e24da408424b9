//! The objects of one kind, and the log of their latest events: what watches resume from, and what exact reads are undone by.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::kinds::ObjectKey;
use super::object::{Event, Object};

/// kube-apiserver's history: at least so many events, and those of the last 75 s up to a maximum.
const EVENTS_MIN: usize = 100;
const EVENTS_MAX: usize = 102_400;
const AGE_MAX: Duration = Duration::from_secs(75);
/// A log of large objects must not exhaust the machine.
const BYTES_MAX: usize = 256 << 20;

pub(super) type Objects = BTreeMap<ObjectKey, Arc<Object>>;

/// One kind's objects and history.
#[derive(Debug)]
pub(super) struct KindState {
    pub(super) objects: Objects,
    log: VecDeque<Logged>,
    logged_bytes: usize,
    /// The oldest version that reads and watches may start from.
    floor: u64,
    /// The newest event that the log has dropped. A watch that has it misses nothing, even below the floor.
    dropped: u64,
    /// Marked when an event was logged, for the open watches.
    pub(super) changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Logged {
    event: Arc<Event>,
    at: Instant,
}

/// The events after a version that are in the log.
pub(super) enum EventsAfter {
    /// Some of them, oldest first; there may be more.
    Events(Vec<Arc<Event>>),
    /// The log does not reach back so far.
    TooOld,
}

impl KindState {
    /// A kind whose history begins at `floor`.
    pub(super) fn new(floor: u64) -> Self {
        Self {
            objects: Objects::new(),
            log: VecDeque::new(),
            logged_bytes: 0,
            floor,
            dropped: 0,
            changed: watch::Sender::new(()),
        }
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Logs an event. The open watches are woken by the caller, once for a batch.
    pub(super) fn log(&mut self, event: Arc<Event>) {
        let at = Instant::now();
        self.logged_bytes += event.object.json().len();
        self.log.push_back(Logged { event, at });
        while self.log.len() > EVENTS_MIN
            && (self.log.len() > EVENTS_MAX
                || self.logged_bytes > BYTES_MAX
                || self
                    .log
                    .front()
                    .is_some_and(|oldest| at - oldest.at > AGE_MAX))
        {
            self.drop_oldest();
            if let Some(oldest) = self.log.front() {
                self.floor = self.floor.max(oldest.event.version() - 1);
            }
        }
    }

    /// Discards the history up to a version that the whole store has reached.
    pub(super) fn compact(&mut self, version: u64) {
        while !self.log.is_empty() {
            self.drop_oldest();
        }
        self.floor = version;
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.log.pop_front() {
            self.logged_bytes -= oldest.event.object.json().len();
            self.dropped = oldest.event.version();
        }
    }

    /// At most `count` events after a version that the reader has.
    pub(super) fn events_after(&self, version: u64, count: usize) -> EventsAfter {
        if version < self.dropped {
            return EventsAfter::TooOld;
        }
        let start = self.index_after(version);
        let events = self.log.range(start..).take(count);
        EventsAfter::Events(events.map(|logged| Arc::clone(&logged.event)).collect())
    }

    fn index_after(&self, version: u64) -> usize {
        self.log
            .partition_point(|logged| logged.event.version() <= version)
    }

    /// The objects at a version; `None` if that is too long ago. Later events are undone, the newest first.
    pub(super) fn objects_at(&self, version: u64) -> Option<Objects> {
        if version < self.floor {
            return None;
        }
        let mut objects = self.objects.clone();
        for logged in self.log.range(self.index_after(version)..).rev() {
            let key = &logged.event.object.key;
            match &logged.event.previous {
                Some(previous) => objects.insert(key.clone(), Arc::clone(previous)),
                None => objects.remove(key.as_str()),
            };
        }
        Some(objects)
    }
}

/// The objects of a namespace (of all if it is empty) whose key relative to it is at or after `start`.
pub(super) fn range<'a>(
    objects: &'a Objects,
    namespace: &str,
    start: &str,
) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
    let prefix = match namespace {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    let first = format!("{prefix}{start}");
    let bounds = (Bound::Included(first.as_str()), Bound::Unbounded);
    let range = objects.range::<str, _>(bounds);
    range
        .take_while(move |(key, _)| key.as_str().starts_with(&prefix))
        .map(|(_, object)| object)
}
