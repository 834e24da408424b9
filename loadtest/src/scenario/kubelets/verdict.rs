//! The end of a run: after the last write every open watch must have everything within the silence that is allowed, and every reflector
//! must have had each event of its selection once and in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kube_fanout::quiet::{BOUND, Silence};
use parking_lot::Mutex;

use super::history::History;
use super::reflector::Reflector;
use super::selection::Selection;
use crate::recorder::Control;
use crate::results::Results;
use crate::verify::reference::Reference;

/// How often the reflectors are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What the reflectors of each selection must have.
#[derive(Debug, Default)]
pub struct References {
    parts: HashMap<Selection, Reference>,
    /// For selections without any object.
    empty: Reference,
}

impl References {
    pub fn add(&mut self, history: &History) {
        let collection = history.collection();
        let parts = history.parts().into_iter();
        self.parts
            .extend(parts.map(|(part, reference)| (Selection { collection, part }, reference)));
    }

    fn of(&self, selection: Selection) -> &Reference {
        self.parts.get(&selection).unwrap_or(&self.empty)
    }
}

/// The reflectors that lacked something when nothing came any more, and how long the others took.
#[derive(Debug, Clone, Copy)]
pub struct QuietEnd {
    behind: usize,
    lasted: Duration,
}

/// Waits until every reflector has the newest version of its selection, or nothing has come for [`BOUND`] although an open watch lacks
/// something.
pub async fn quiet(
    reflectors: &[Arc<Mutex<Reflector>>],
    references: &References,
    control: &Control,
    wait: Duration,
) -> QuietEnd {
    let started = Instant::now();
    // Relaxed: the counts stand alone.
    let arrivals = || control.arrivals.load(Ordering::Relaxed);
    let mut silence = Silence::begin(arrivals(), Duration::ZERO);
    loop {
        let lacks = |one: &&Arc<Mutex<Reflector>>| {
            let reflector = one.lock();
            reflector.version() < references.of(reflector.selection()).last()
        };
        let behind: Vec<_> = reflectors.iter().filter(lacks).collect();
        let lasted = started.elapsed();
        let is_silent = silence.look(arrivals(), lasted) >= BOUND;
        let open = behind.iter().filter(|one| one.lock().is_open()).count();
        if behind.is_empty() || lasted > wait || (is_silent && open > 0) {
            return QuietEnd {
                behind: behind.len(),
                lasted,
            };
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl QuietEnd {
    pub fn report(self, results: &mut Results) {
        let Self { behind, lasted } = self;
        results.figure(
            "quiet end: all have everything after, ms",
            lasted.as_secs_f64() * 1e3,
        );
        results.figure("quiet end: watches behind", behind as f64);
        if behind > 0 {
            results.fault(format!(
                "target: behind at the end: {behind} watches; nothing came for {BOUND:?}, or for too long"
            ));
        }
    }
}

/// Compares every reflector with what happened.
pub fn judge(reflectors: &[Arc<Mutex<Reflector>>], references: &References, results: &mut Results) {
    let mut verified = 0;
    for (number, reflector) in reflectors.iter().enumerate() {
        let reflector = reflector.lock();
        let selection = reflector.selection();
        verified += reflector.event_count();
        if let Some(fault) = reflector.verdict(references.of(selection)) {
            let who = format!("target: watch {number} of {:?}", selection.collection);
            results.fault_of(&who, &fault.to_string());
        }
    }
    results.figure("events verified", verified as f64);
}
