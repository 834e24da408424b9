//! The contract of list and watch, checked on what one client receives.
//!
//! | property | check |
//! |---|---|
//! | ordered, unique | versions of a stream increase strictly, also from one stream to the next |
//! | reliable, resumable | at a bookmark the client has exactly the objects of that version |
//! | bookmarkable | a bookmark is not below an event, and no event is missing below it |
//! | atomic, filtered | an event's object is what was stored at its version, and the client asked for it |
//! | fresh | a list without a version is not older than its request |
//! | convergent | when writes and faults have ended, the client has the newest objects |

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::history::{Filter, History, Objects, State};

/// What all clients report to.
#[derive(Clone, Debug, Default)]
pub(super) struct Report(Arc<Mutex<Findings>>);

#[derive(Debug)]
struct Findings {
    violations: Vec<String>,
    counts: Counts,
    hash: u64,
    log: bool,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            violations: Vec::new(),
            counts: Counts::default(),
            hash: 0xcbf2_9ce4_8422_2325,
            log: super::variable("FANOUT_SIM_TRACE").is_some(),
        }
    }
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) events: u64,
    pub(super) bookmarks: u64,
    pub(super) lists: u64,
    pub(super) expired: u64,
    pub(super) streams: u64,
}

impl Report {
    /// Adds a line to the run's trace, which is the same in each run of a seed.
    pub(super) fn note(&self, who: &str, what: &str) {
        let at = turmoil::sim_elapsed().unwrap_or_default().as_millis();
        let line = format!("{at} {who} {what}\n");
        let mut findings = self.0.lock();
        for byte in line.bytes() {
            findings.hash = (findings.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if findings.log {
            print!("{line}");
        }
    }

    /// The time since the start of the run.
    pub(super) fn elapsed(&self) -> Duration {
        turmoil::sim_elapsed().unwrap_or_default()
    }

    pub(super) fn violation(&self, who: &str, what: &str) {
        let at = turmoil::sim_elapsed().unwrap_or_default();
        let mut findings = self.0.lock();
        findings.violations.push(format!("{at:?} {who}: {what}"));
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.0.lock().counts);
    }

    pub(super) fn end(&self) -> (Vec<String>, Counts, u64) {
        let findings = self.0.lock();
        (findings.violations.clone(), findings.counts, findings.hash)
    }
}

/// One client: what it has, and what it may get next.
#[derive(Clone, Debug)]
pub(super) struct Contract {
    pub(super) name: String,
    pub(super) filter: Filter,
    pub(super) version: u64,
    pub(super) history: History,
    pub(super) report: Report,
    objects: Arc<Mutex<Objects>>,
}

impl Contract {
    pub(super) fn new(name: String, filter: Filter, history: History, report: Report) -> Self {
        Self {
            name,
            filter,
            version: 0,
            history,
            report,
            objects: Arc::default(),
        }
    }

    fn violation(&self, what: &str) {
        self.report.violation(&self.name, what);
    }

    /// The client has a whole list. `floor` is the newest version that the list may not be older than.
    pub(super) fn on_list(&mut self, version: u64, objects: Objects, floor: u64) {
        self.report.count(|counts| counts.lists += 1);
        self.report
            .note(&self.name, &format!("list {version} of {}", objects.len()));
        if version < floor {
            self.violation(&format!("a list of {version} is older than {floor}"));
        }
        *self.objects.lock() = objects;
        self.version = version;
        self.compare("list");
    }

    /// A streamed list begins: the client has nothing.
    pub(super) fn on_initial_events(&mut self) {
        self.objects.lock().clear();
        self.version = 0;
    }

    /// An initial event of a streamed list, whose order is not given.
    pub(super) fn on_initial_event(&mut self, object: &Value) {
        let (key, version) = identity(object);
        self.objects.lock().insert(key, version);
    }

    /// An event of a watch.
    pub(super) fn on_event(&mut self, kind: &str, object: &Value) {
        self.report.count(|counts| counts.events += 1);
        let (key, version) = identity(object);
        self.report
            .note(&self.name, &format!("{kind} {key} {version}"));
        if version <= self.version {
            self.violation(&format!("{kind} {key} at {version} after {}", self.version));
        }
        self.version = version;
        if kind == "DELETED" {
            self.on_deletion(&key, version);
            return;
        }
        let stored = self.history.change(&key, version);
        if stored.flatten() != Some(State::of(object)) {
            self.violation(&format!("{kind} {key}: no such object at {version}"));
        }
        if !State::of(object).is_wanted(self.filter) {
            self.violation(&format!("{kind} {key} at {version} was not asked for"));
        }
        self.objects.lock().insert(key, version);
    }

    /// A deletion that a relist found has a version of the gateway's choice, which may be one of a change that nobody has seen. So it only
    /// has to be true that the object that the client has came to an end.
    fn on_deletion(&self, key: &str, version: u64) {
        let had = self.objects.lock().remove(key).unwrap_or(0);
        if !self.history.has_ended(key, had, self.filter) {
            let changes = self.history.changes_after(key, had);
            self.violation(&format!(
                "DELETED {key} at {version}, which has not ended since {had}: {changes}"
            ));
        }
    }

    /// A bookmark: nothing at or below its version is missing.
    pub(super) fn on_bookmark(&mut self, version: u64) {
        self.report.count(|counts| counts.bookmarks += 1);
        self.report.note(&self.name, &format!("bookmark {version}"));
        if version < self.version {
            self.violation(&format!("a bookmark at {version} after {}", self.version));
        }
        self.version = version;
        self.compare("bookmark");
    }

    fn compare(&self, what: &str) {
        let expected = self.history.at(self.version, self.filter);
        if let Some(difference) = difference(&self.objects.lock(), &expected) {
            self.violation(&format!("{what} at {}: {difference}", self.version));
        }
    }

    /// What the client has other than the newest objects.
    pub(super) fn behind(&self) -> Option<String> {
        difference(
            &self.objects.lock(),
            &self.history.at(u64::MAX, self.filter),
        )
    }
}

/// The first differences between what a client has and what it should have.
pub(super) fn difference(have: &Objects, expected: &Objects) -> Option<String> {
    if have == expected {
        return None;
    }
    let missing = expected
        .iter()
        .filter(|(key, version)| have.get(*key) != Some(*version));
    let missing =
        missing.map(|(key, version)| format!("{key}@{version} instead of {:?}", have.get(key)));
    let extra = have.keys().filter(|key| !expected.contains_key(*key));
    let extra = extra.map(|key| format!("{key}@{} is gone", have[key]));
    Some(missing.chain(extra).take(4).collect::<Vec<_>>().join(", "))
}

/// Key and version of an object.
pub(super) fn identity(object: &Value) -> (String, u64) {
    let metadata = &object["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default();
    let key = format!("{}/{}", text("namespace"), text("name"));
    (key, text("resourceVersion").parse().unwrap_or(0))
}
