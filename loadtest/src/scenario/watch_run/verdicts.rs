//! The verdicts about all watchers of a run.

use std::collections::HashMap;
use std::sync::Arc;

use crate::results::Results;
use crate::texts::Texts;
use crate::verify::reference::{Part, Reference};
use crate::watcher::{Plan, Watcher};

/// Number of different faults that are described; further ones are counted.
const DESCRIBED_MAX: usize = 10;

pub const LISTS_VERIFIED: &str = "lists verified";

/// The sum of all verdicts.
#[derive(Debug)]
pub struct WatchOutcome {
    pub described: Texts,
    pub faulty: usize,
    /// Events that all watchers received.
    pub verified: u64,
    /// Lists that were compared with the reference's state.
    pub lists: usize,
    pub expired: usize,
    /// Reading watchers that received 410 and listed again. Watchers that come and go may: they watch from old versions.
    pub readers_expired: usize,
    /// Streams of reading watchers that ended.
    pub ended: u64,
    /// Streams of slow watchers that ended.
    pub ended_slow: u64,
}

impl Default for WatchOutcome {
    fn default() -> Self {
        Self {
            described: Texts::new(DESCRIBED_MAX),
            faulty: 0,
            verified: 0,
            lists: 0,
            expired: 0,
            readers_expired: 0,
            ended: 0,
            ended_slow: 0,
        }
    }
}

impl WatchOutcome {
    /// Compares every watcher with the part of the reference that belongs to its plan.
    pub fn of(watchers: &[Watcher], plans: &[Arc<Plan>], parts: &HashMap<Part, Reference>) -> Self {
        let nothing = Reference::default();
        let prints: HashMap<_, _> = parts
            .iter()
            .map(|(group, part)| (group, part.fingerprints()))
            .collect();
        let no_prints = nothing.fingerprints();
        let mut outcome = Self::default();
        for (number, watcher) in watchers.iter().enumerate() {
            let group = number % plans.len();
            let seen = plans[group].part;
            let part = parts.get(&seen).unwrap_or(&nothing);
            let goal = plans[group].goal.get().unwrap_or(0);
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

    fn count(&mut self, watcher: &Watcher) {
        self.verified += watcher.track().count();
        self.lists += watcher.list_count();
        let is_expired = watcher.expired() > 0;
        self.expired += usize::from(is_expired);
        self.readers_expired += usize::from(is_expired && watcher.behaviour().reads_on());
        if watcher.is_slow() {
            self.ended_slow += watcher.streams_ended();
        } else {
            self.ended += watcher.streams_ended();
        }
    }

    /// Adds all figures to the newest column, and the faults to the results.
    pub fn report(&self, results: &mut Results, name: &str, reference_events: usize) {
        for fault in self.described.lines() {
            results.fault(format!("{name}: {fault}"));
        }
        results.figure("reference events", reference_events as f64);
        results.figure("events verified", self.verified as f64);
        results.figure(LISTS_VERIFIED, self.lists as f64);
        results.figure("watchers told 410", self.expired as f64);
        results.figure("streams ended, readers", self.ended as f64);
        results.figure("streams ended, stalled", self.ended_slow as f64);
        results.figure("faulty watchers", self.faulty as f64);
        if reference_events == 0 {
            results.fault(format!("{name}: no events at all: nothing was proven"));
        }
    }

    /// Adds faults for readers that lost their stream or had to list again. A server that drops all watchers loses no event, because all
    /// resume.
    pub fn report_drops(&self, results: &mut Results, name: &str) {
        if self.ended > 0 {
            let ended = self.ended;
            results.fault(format!("{name}: {ended} streams of readers were ended"));
        }
        if self.readers_expired > 0 {
            let expired = self.readers_expired;
            results.fault(format!(
                "{name}: {expired} readers received 410 and had to list again"
            ));
        }
    }
}
