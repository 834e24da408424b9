//! What all watchers of a run came to, compared with the reference.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::results::Results;
use crate::texts::Texts;
use crate::verify::reference::Reference;
use crate::watcher::{Plan, Watcher};

/// Different faults that are described; the rest is counted.
const DESCRIBED_MAX: usize = 10;

/// The sum of all verdicts.
#[derive(Debug, Serialize, Deserialize)]
pub struct WatchOutcome {
    /// What the faulty watchers got wrong.
    pub described: Texts,
    /// Watchers that got something wrong.
    pub faulty: usize,
    /// Events that all of them took.
    pub verified: u64,
    /// Watchers that were told 410.
    pub expired: usize,
    /// Readers that were told 410, and listed again. Those that come and go may be: they watch from versions that grow old.
    pub readers_expired: usize,
    /// Streams that ended, of those who read.
    pub ended: u64,
    /// Streams that ended, of the slow.
    pub ended_slow: u64,
}

impl Default for WatchOutcome {
    fn default() -> Self {
        Self {
            described: Texts::new(DESCRIBED_MAX),
            faulty: 0,
            verified: 0,
            expired: 0,
            readers_expired: 0,
            ended: 0,
            ended_slow: 0,
        }
    }
}

impl WatchOutcome {
    /// Compares every watcher with the part of the reference that belongs to its plan; the first has this number.
    pub fn of(
        watchers: &[Watcher],
        plans: &[Arc<Plan>],
        parts: &HashMap<usize, Reference>,
        first: usize,
    ) -> Self {
        let nothing = Reference::default();
        let prints: HashMap<_, _> = parts
            .iter()
            .map(|(group, part)| (group, part.fingerprints()))
            .collect();
        let no_prints = nothing.fingerprints();
        let mut outcome = Self::default();
        for (number, watcher) in (first..).zip(watchers) {
            let group = number % plans.len();
            let seen = plans[group].part;
            let part = parts.get(&seen).unwrap_or(&nothing);
            let goal = plans[group].goal().unwrap_or(0);
            let states = prints.get(&seen).unwrap_or(&no_prints);
            outcome.count(watcher);
            if let Some(fault) = watcher.verdict(part, states, goal) {
                outcome.faulty += 1;
                let who = format!("watcher {number} ({:?})", watcher.behaviour());
                outcome.described.add(&who, &fault.to_string());
            }
        }
        outcome
    }

    /// Adds another share's.
    pub fn add(&mut self, other: &Self) {
        self.described.merge(&other.described);
        self.faulty += other.faulty;
        self.verified += other.verified;
        self.expired += other.expired;
        self.readers_expired += other.readers_expired;
        self.ended += other.ended;
        self.ended_slow += other.ended_slow;
    }

    fn count(&mut self, watcher: &Watcher) {
        self.verified += watcher.track().count();
        let is_expired = watcher.expired() > 0;
        self.expired += usize::from(is_expired);
        self.readers_expired += usize::from(is_expired && watcher.behaviour().reads_on());
        if watcher.is_slow() {
            self.ended_slow += watcher.streams_ended();
        } else {
            self.ended += watcher.streams_ended();
        }
    }

    /// Puts all into the newest column, and the faults into the results.
    pub fn report(&self, results: &mut Results, name: &str, reference_events: usize) {
        for fault in self.described.lines() {
            results.fault(format!("{name}: {fault}"));
        }
        results.figure("reference events", reference_events as f64);
        results.figure("events verified", self.verified as f64);
        results.figure("watchers told 410", self.expired as f64);
        results.figure("streams ended, readers", self.ended as f64);
        results.figure("streams ended, stalled", self.ended_slow as f64);
        results.figure("faulty watchers", self.faulty as f64);
        if reference_events == 0 {
            results.fault(format!("{name}: no events at all: nothing was proven"));
        }
    }

    /// Makes faults of readers that lost their stream or their place, where that is not what is played. A server that drops everybody would
    /// lose no event: all come back for them.
    pub fn report_drops(&self, results: &mut Results, name: &str) {
        if self.ended > 0 {
            let ended = self.ended;
            results.fault(format!("{name}: {ended} streams of readers were ended"));
        }
        if self.readers_expired > 0 {
            let expired = self.readers_expired;
            results.fault(format!(
                "{name}: {expired} readers were told 410 and had to list again"
            ));
        }
    }
}
