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
pub(crate) struct Report(Arc<Mutex<Findings>>);

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
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) bookmarks: u64,
    pub(crate) lists: u64,
    pub(crate) expired: u64,
    pub(crate) streams: u64,
}

impl Report {
    /// Adds a line to the run's trace, which is the same in each run of a seed.
    pub(crate) fn note(&self, who: &str, what: &str) {
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
    pub(crate) fn elapsed(&self) -> Duration {
        turmoil::sim_elapsed().unwrap_or_default()
    }

    pub(crate) fn violation(&self, who: &str, what: &str) {
        let at = turmoil::sim_elapsed().unwrap_or_default();
        let mut findings = self.0.lock();
        findings.violations.push(format!("{at:?} {who}: {what}"));
    }

    pub(crate) fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.0.lock().counts);
    }

    pub(crate) fn end(&self) -> (Vec<String>, Counts, u64) {
        let findings = self.0.lock();
        (findings.violations.clone(), findings.counts, findings.hash)
    }
}

/// One client: what it has, and what it may get next.
#[derive(Clone, Debug)]
pub(crate) struct Contract {
    pub(crate) name: String,
    pub(crate) filter: Filter,
    pub(crate) version: u64,
    /// The life of the API server that the version belongs to.
    life: usize,
    pub(crate) history: History,
    pub(crate) report: Report,
    objects: Arc<Mutex<Objects>>,
}

impl Contract {
    pub(crate) fn new(name: String, filter: Filter, history: History, report: Report) -> Self {
        Self {
            name,
            filter,
            version: 0,
            life: 0,
            history,
            report,
            objects: Arc::default(),
        }
    }

    fn violation(&self, what: &str) {
        self.report.violation(&self.name, what);
    }

    /// The client has a whole list. `floor` is the newest version when it asked, which the list may not be older than.
    pub(crate) fn on_list(&mut self, version: u64, objects: Objects, floor: Option<(usize, u64)>) {
        self.report.count(|counts| counts.lists += 1);
        self.report
            .note(&self.name, &format!("list {version} of {}", objects.len()));
        *self.objects.lock() = objects;
        self.begin_at(version, floor);
        self.compare("list");
    }

    /// The bookmark at the end of a streamed list.
    pub(crate) fn on_initial_end(&mut self, version: u64, floor: (usize, u64)) {
        self.begin_at(version, Some(floor));
        self.on_bookmark(version);
    }

    /// Begins with a list, in the last life of the API server's state in which it is true. A list that may be old may be from a life before,
    /// as long as a gateway has not noticed.
    fn begin_at(&mut self, version: u64, floor: Option<(usize, u64)>) {
        self.version = version;
        let (oldest, floor) = floor.unwrap_or_default();
        let newest = self.history.life();
        // A list without objects may be true in several lives, but its version belongs only to one that has reached it.
        let is_true = |life: &usize| {
            if !self.history.has_reached((*life, version)) {
                return false;
            }
            let expected = self.history.at((*life, version), self.filter);
            *self.objects.lock() == expected
        };
        self.life = (oldest..=newest).rev().find(is_true).unwrap_or(newest);
        self.check_reached();
        if self.life == oldest && version < floor {
            self.violation(&format!("a list of {version} is older than {floor}"));
        }
    }

    /// A streamed list begins: the client has nothing.
    pub(crate) fn on_initial_events(&mut self) {
        self.objects.lock().clear();
        self.version = 0;
    }

    /// An initial event of a streamed list, whose order is not given.
    pub(crate) fn on_initial_event(&mut self, object: &Value) {
        let (key, version) = identity(object);
        self.objects.lock().insert(key, version);
    }

    /// An event of a watch.
    pub(crate) fn on_event(&mut self, kind: &str, object: &Value) {
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
        let stored = self.history.change(&key, (self.life, version));
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
        if !self.history.has_ended(key, (self.life, had), self.filter) {
            let changes = self.history.changes_after(key, (self.life, had));
            self.violation(&format!(
                "DELETED {key} at {version}, which has not ended since {had}: {changes}"
            ));
        }
    }

    /// A bookmark: nothing at or below its version is missing.
    pub(crate) fn on_bookmark(&mut self, version: u64) {
        self.report.count(|counts| counts.bookmarks += 1);
        self.report.note(&self.name, &format!("bookmark {version}"));
        if version < self.version {
            self.violation(&format!("a bookmark at {version} after {}", self.version));
        }
        self.version = version;
        self.check_reached();
        self.compare("bookmark");
    }

    fn check_reached(&self) {
        if !self.history.has_reached((self.life, self.version)) {
            self.violation(&format!("version {} is in the future", self.version));
        }
    }

    fn compare(&self, what: &str) {
        let expected = self.history.at((self.life, self.version), self.filter);
        if let Some(difference) = difference(&self.objects.lock(), &expected) {
            self.violation(&format!("{what} at {}: {difference}", self.version));
        }
    }

    /// What the client has other than the newest objects.
    pub(crate) fn behind(&self) -> Option<String> {
        difference(
            &self.objects.lock(),
            &self
                .history
                .at((self.history.life(), u64::MAX), self.filter),
        )
    }
}

/// The first differences between what a client has and what it should have.
pub(crate) fn difference(have: &Objects, expected: &Objects) -> Option<String> {
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
pub(crate) fn identity(object: &Value) -> (String, u64) {
    let metadata = &object["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default();
    let key = format!("{}/{}", text("namespace"), text("name"));
    (key, text("resourceVersion").parse().unwrap_or(0))
}
