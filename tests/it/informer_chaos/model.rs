//! The state of the simulated API server: its objects, their history, and the faults to inject. `responses.rs` makes the responses.

use std::collections::BTreeMap;
use std::ops::Range;
use std::task::Waker;

use crate::support::random::Random;

/// The number of object names; few, so that objects are created, deleted and created again.
const KEY_COUNT: u64 = 16;

/// The state of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) uid: u64,
    pub(crate) version: u64,
    /// The object's content: the version of the write that set it.
    pub(crate) n: u64,
    /// The number of padding bytes in the object.
    pub(crate) padding: usize,
}

/// Objects by `namespace/name`.
pub(crate) type Items = BTreeMap<String, Item>;

/// The part of an object that a client requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    Whole,
    Metadata,
}

impl Item {
    /// The object without its opening brace and `kind`.
    fn rest(&self, key: &str, projection: Projection) -> String {
        let (namespace, name) = key.split_once('/').unwrap();
        let Self {
            uid,
            version,
            n,
            padding,
        } = self;
        let padding = "x".repeat(*padding);
        let metadata = format!(
            "\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"{namespace}\",\"uid\":\"u{uid}\",\"resourceVersion\":\"{version}\",\"annotations\":{{\"n\":\"{n}\"}}}}"
        );
        match projection {
            Projection::Whole => {
                format!("{metadata},\"data\":{{\"n\":\"{n}\",\"padding\":\"{padding}\"}}}}")
            }
            Projection::Metadata => format!("{metadata}}}"),
        }
    }

    pub(crate) fn object(&self, key: &str, projection: Projection) -> String {
        let head = match projection {
            Projection::Whole => "\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\"",
            Projection::Metadata => "\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\"",
        };
        format!("{{{head},{}", self.rest(key, projection))
    }

    /// The object as an item of a list; whole items omit their kind.
    pub(crate) fn listed(&self, key: &str, projection: Projection) -> String {
        match projection {
            Projection::Whole => format!("{{{}", self.rest(key, projection)),
            Projection::Metadata => self.object(key, projection),
        }
    }
}

/// One write: its event, and the state after it.
struct Write {
    version: u64,
    event_type: &'static str,
    key: String,
    item: Item,
    state: Items,
}

/// A defect that a test plants, to check that the run detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlantedDefect {
    Nothing,
    /// After the faults have ended, one event is delivered to no client.
    LostEvent,
}

/// How the server answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerMode {
    /// Faults are injected.
    Faulty,
    /// Every request fails, and all streams are cut.
    Unreachable,
    /// No faults are injected.
    Healthy,
}

pub(crate) struct Model {
    pub(crate) random: Random,
    pub(crate) mode: ServerMode,
    pub(crate) revision: u64,
    /// The history up to this version is compacted.
    pub(crate) compacted_version: u64,
    /// Increased to cut all streams: those of an older epoch end.
    pub(crate) epoch: u32,
    /// The number of restored backups. Continue tokens of another timeline are invalid.
    pub(crate) timeline: u32,
    /// The versions before and after each restored backup.
    pub(crate) rollbacks: Vec<(u64, u64)>,
    /// True after a restored backup until the client has noticed it. Writes are paused meanwhile, because they would reuse versions, and
    /// then no client, client-go included, could detect the rollback by its version.
    pub(crate) writes_paused: bool,
    /// True from the end of a list response until the client's next request or failure. The client decodes long lists on another thread,
    /// which the test's clock does not control.
    pub(crate) list_in_progress: bool,
    pub(crate) defect: PlantedDefect,
    /// Objects have random sizes, and writes come in bursts.
    pub(crate) large: bool,
    pub(crate) fault_counts: BTreeMap<&'static str, u64>,
    pub(crate) requests: Vec<String>,
    history: Vec<Write>,
    wakers: Vec<Waker>,
}

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            mode: ServerMode::Faulty,
            revision: 5,
            compacted_version: 0,
            epoch: 0,
            timeline: 0,
            rollbacks: Vec::new(),
            writes_paused: false,
            list_in_progress: false,
            defect: PlantedDefect::Nothing,
            large: seed % 23 == 2,
            fault_counts: BTreeMap::new(),
            requests: Vec::new(),
            history: Vec::new(),
            wakers: Vec::new(),
        }
    }

    pub(crate) fn state_at(&self, version: u64) -> Items {
        let after = self.history.partition_point(|write| write.version <= version);
        let last = after.checked_sub(1).map(|at| &self.history[at]);
        last.map_or_else(Items::new, |write| write.state.clone())
    }

    pub(crate) fn state(&self) -> Items {
        self.state_at(u64::MAX)
    }

    /// The event lines after a version, and the last event's version.
    pub(crate) fn events_after(&mut self, version: u64, projection: Projection) -> (String, u64) {
        let from = self.history.partition_point(|write| write.version <= version);
        let mut lines = String::new();
        let mut reached = version;
        for write in &self.history[from..] {
            reached = write.version;
            if self.defect == PlantedDefect::LostEvent && self.mode == ServerMode::Healthy {
                self.defect = PlantedDefect::Nothing;
                // Send a bookmark with the lost event's version; otherwise the next watch would deliver the event.
                lines.push_str(&bookmark(reached, ""));
                continue;
            }
            lines.push_str(&event(write.event_type, &write.item.object(&write.key, projection)));
        }
        (lines, reached)
    }

    /// The last event that a stream has delivered, again.
    pub(crate) fn repetition(&self, delivered: Range<u64>, projection: Projection) -> Option<String> {
        let after = self.history.partition_point(|write| write.version <= delivered.end);
        let write = &self.history[after.checked_sub(1)?];
        let line = event(write.event_type, &write.item.object(&write.key, projection));
        (write.version > delivered.start).then_some(line)
    }

    /// Creates, updates or deletes a random object.
    pub(crate) fn write(&mut self) {
        let key = self.any_key();
        let present = self.state().contains_key(&key);
        if present && self.random.one_in(3) {
            self.delete(&key);
        } else {
            self.put(&key);
        }
    }

    /// Deletes a random object and creates it again with another uid.
    pub(crate) fn replace(&mut self) {
        let key = self.any_key();
        if self.state().contains_key(&key) {
            self.delete(&key);
        }
        self.put(&key);
    }

    fn any_key(&mut self) -> String {
        let number = self.random.below(KEY_COUNT);
        format!(
            "{}/{number:02}",
            ["a", "b"][usize::from(number.is_multiple_of(3))]
        )
    }

    fn put(&mut self, key: &str) {
        let Some((version, mut state)) = self.begin() else {
            return;
        };
        let present = state.get(key);
        let item = Item {
            uid: present.map_or(version, |present| present.uid),
            version,
            n: version,
            padding: if self.large {
                padding(&mut self.random)
            } else {
                0
            },
        };
        let event_type = if present.is_some() { "MODIFIED" } else { "ADDED" };
        state.insert(key.to_owned(), item.clone());
        self.end(event_type, key, item, state);
    }

    fn delete(&mut self, key: &str) {
        let Some((version, mut state)) = self.begin() else {
            return;
        };
        let mut item = state.remove(key).unwrap();
        item.version = version;
        self.end("DELETED", key, item, state);
    }

    fn begin(&mut self) -> Option<(u64, Items)> {
        if self.writes_paused {
            return None;
        }
        self.revision += 1 + self.random.below(2);
        Some((self.revision, self.state()))
    }

    fn end(&mut self, event_type: &'static str, key: &str, item: Item, state: Items) {
        self.history.push(Write {
            version: self.revision,
            event_type,
            key: key.to_owned(),
            item,
            state,
        });
        self.wake();
    }

    pub(crate) fn compact(&mut self) {
        self.count_fault("compaction");
        let kept_count = self.random.below(8);
        self.compacted_version = self.compacted_version.max(self.revision.saturating_sub(kept_count));
    }

    /// The server restarts: all streams are cut, and half of the time the history is lost.
    pub(crate) fn restart(&mut self) {
        self.count_fault("restart");
        self.epoch += 1;
        if self.random.one_in(2) {
            self.compacted_version = self.revision;
        }
        self.wake();
    }

    /// A backup is restored: the last writes are undone.
    pub(crate) fn restore(&mut self) {
        let back = 1 + self.random.below(20);
        let kept_count = self
            .history
            .len()
            .saturating_sub(usize::try_from(back).unwrap());
        if kept_count == 0 {
            return;
        }
        self.count_fault("restore");
        self.history.truncate(kept_count);
        let before = self.revision;
        self.revision = self.history[kept_count - 1].version;
        self.rollbacks.push((before, self.revision));
        self.compacted_version = self.compacted_version.min(self.revision);
        self.timeline += 1;
        self.epoch += 1;
        self.writes_paused = true;
        self.wake();
    }

    pub(crate) fn set_mode(&mut self, mode: ServerMode) {
        self.mode = mode;
        self.wake();
    }

    /// Decides whether to inject a fault, with a probability of one in `n` while the server is faulty, and counts it.
    pub(crate) fn should_inject(&mut self, n: u64, fault: &'static str) -> bool {
        let fault_counts = self.mode == ServerMode::Faulty && self.random.one_in(n);
        if fault_counts {
            self.count_fault(fault);
        }
        fault_counts
    }

    pub(crate) fn count_fault(&mut self, fault: &'static str) {
        *self.fault_counts.entry(fault).or_default() += 1;
    }

    pub(crate) fn wait(&mut self, waker: &Waker) {
        self.wakers.push(waker.clone());
    }

    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

/// A random number of bytes, from 100 to 1 MiB. Large ones are rare, because a run would take minutes otherwise.
pub(crate) fn padding(random: &mut Random) -> usize {
    match random.below(64) {
        0 => 1 << 20,
        1..4 => 70_000,
        4..16 => 10_000,
        16..32 => 1_000,
        _ => 100,
    }
}

pub(crate) fn event(event_type: &str, object: &str) -> String {
    format!("{{\"type\":\"{event_type}\",\"object\":{object}}}\n")
}

pub(crate) fn bookmark(version: u64, annotations: &str) -> String {
    event(
        "BOOKMARK",
        &format!(
            "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"{annotations}}}}}"
        ),
    )
}
