//! The watchers of a run: their number, what they ask for, and how they behave.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::recording::{PartsOf, Recording, whole};
use crate::swarm::Accept;
use crate::swarm::pace::Slowness;
use crate::verify::reference::{ObjectVersions, Part};
use crate::watcher::{Behaviour, Plan, Polling, Watcher};
use crate::writer::shape::{node_name, number_of};

/// One watcher in this many is sampled.
const SAMPLED_EVERY: usize = 50;
/// In a mixed population one watch in this many has no bookmarks.
const SILENT_EVERY: usize = 4;
/// Longer than any run: streams must not end by themselves.
const STREAM_TIMEOUT_S: u64 = 3_600;

/// The objects that watchers select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Select {
    All,
    /// Watcher `i` selects the pods of node `i`, out of this many nodes.
    Nodes(usize),
}

/// The watchers of a run.
#[derive(Debug, Clone)]
pub struct Population {
    pub watchers: usize,
    /// The objects that they select.
    pub select: Select,
    /// Number of watchers whose latencies are not counted, whether they are slow or not, so that two runs compare the same others.
    pub excluded: usize,
    /// How these watchers are slow, if they are.
    pub slowness: Option<Slowness>,
    /// Whether all watchers come and go.
    pub visits: bool,
    /// Whether all watchers leave each watch with its first events.
    pub long_polls: bool,
    /// The time between two lists of a watcher, if all of them list instead of watching.
    pub polls_every: Option<Duration>,
    /// See [`Plan::line_len_max`].
    pub line_len_max: Option<usize>,
    /// See [`Plan::bookmarks`].
    pub bookmarks: bool,
    /// Start versions, used in turn; empty means the run's start. In such a population one watch in four has no bookmarks.
    pub starts: Vec<u64>,
    /// Media type. In JSON, some watchers compare events byte by byte with the reference's, which are in JSON.
    pub accept: Accept,
}

impl Population {
    /// Watchers of the whole collection that read everything.
    pub fn of(watchers: usize) -> Self {
        Self {
            watchers,
            select: Select::All,
            excluded: 0,
            slowness: None,
            visits: false,
            long_polls: false,
            polls_every: None,
            line_len_max: None,
            bookmarks: true,
            starts: Vec::new(),
            accept: Accept::Json,
        }
    }

    /// The plans: one for all, one for each node, or one for each start with bookmarks and without.
    pub fn plans(&self, path: &str, start: u64) -> Vec<Arc<Plan>> {
        let plan = |start: u64, selector: String| {
            let mut plan = Plan::new(path, start, STREAM_TIMEOUT_S);
            plan.selector = selector;
            plan.line_len_max = self.line_len_max;
            plan.bookmarks = self.bookmarks;
            plan.encoding = self.accept.encoding();
            plan
        };
        let plans: Vec<Plan> = match self.select {
            Select::All if self.starts.is_empty() => vec![plan(start, String::new())],
            // Enough plans that every start occurs with bookmarks and without.
            Select::All => (0..self.starts.len() * SILENT_EVERY)
                .map(|number| {
                    let mut plan = plan(self.starts[number % self.starts.len()], String::new());
                    plan.bookmarks &= !(number / self.starts.len()).is_multiple_of(SILENT_EVERY);
                    plan
                })
                .collect(),
            Select::Nodes(nodes) => (0..nodes.max(1))
                .map(|node| {
                    let selector = format!("&fieldSelector=spec.nodeName%3D{}", node_name(node));
                    let mut plan = plan(start, selector);
                    plan.part = Part::Number(u32::try_from(node).unwrap_or(u32::MAX));
                    plan
                })
                .collect(),
        };
        plans.into_iter().map(Arc::new).collect()
    }

    /// The watchers, which hold `initial` at their plan's start.
    pub fn make_watchers(
        &self,
        plans: &[Arc<Plan>],
        initial: &Arc<ObjectVersions>,
    ) -> Vec<Watcher> {
        (0..self.watchers)
            .map(|number| {
                let plan = plans[number % plans.len()].clone();
                let watcher = Watcher::new(plan, self.behaviour(number), initial);
                // Each samples other events than the next, so that together they check all.
                watcher.sampling_from(number / SAMPLED_EVERY)
            })
            .collect()
    }

    /// The parts of the collection that objects belong to.
    pub fn parts_of(&self) -> PartsOf {
        match self.select {
            Select::All => whole,
            Select::Nodes(_) => of_node,
        }
    }

    fn behaviour(&self, number: usize) -> Behaviour {
        if self.visits {
            return Behaviour::Visits {
                seed: number as u64,
            };
        }
        if self.long_polls {
            return Behaviour::LongPolls;
        }
        if let Some(every) = self.polls_every {
            let share = number as f64 / self.watchers.max(1) as f64;
            return Behaviour::Polls(Polling {
                every,
                first_after: every.mul_f64(share),
            });
        }
        // Spread evenly: over HTTP/2 excluded watchers share connections with the others.
        let excluded_every = self.watchers / self.excluded.clamp(1, self.watchers.max(1));
        let is_excluded = self.excluded > 0 && (number + 1).is_multiple_of(excluded_every.max(1));
        match self.slowness {
            Some(slowness) if is_excluded => Behaviour::Slow(slowness),
            None if is_excluded => Behaviour::Excluded,
            _ if self.accept == Accept::Json
                && (number.is_multiple_of(SAMPLED_EVERY) || number + 1 == self.watchers) =>
            {
                Behaviour::Sampled
            }
            _ => Behaviour::Reads,
        }
    }
}

/// The node that a pod is bound to.
pub fn of_node(pod: &Value) -> Vec<Part> {
    let node = pod["spec"]["nodeName"].as_str().and_then(number_of);
    let node = node.and_then(|node| u32::try_from(node).ok());
    node.map(Part::Number).into_iter().collect()
}

/// Sets the goal of every plan: the newest version that its watchers will receive.
pub fn set_goals(plans: &[Arc<Plan>], recording: &Recording) {
    for plan in plans {
        plan.goal
            .set(recording.last_of(plan.part).max(recording.start));
    }
}

#[cfg(test)]
mod tests {
    //! Excluded watchers, and starts.

    use super::*;

    #[test]
    fn excluded_watchers_are_as_many_as_configured_and_leave_some_to_sample() {
        for (watchers, excluded) in [(5_000, 50), (100, 50), (10, 5), (4, 4), (20, 0)] {
            let slowness = Some(Slowness::STALLED);
            let population = Population {
                excluded,
                slowness,
                ..Population::of(watchers)
            };
            let behaviours: Vec<_> = (0..watchers)
                .map(|number| population.behaviour(number))
                .collect();
            let slow = behaviours
                .iter()
                .filter(|one| matches!(one, Behaviour::Slow(_)));
            assert_eq!(slow.count(), excluded);
            assert!(excluded == watchers || behaviours.contains(&Behaviour::Sampled));
        }
    }

    #[test]
    fn a_mixed_population_begins_at_every_start_with_bookmarks_and_without() {
        let population = Population {
            starts: vec![10, 20, 30],
            ..Population::of(24)
        };
        let plans = population.plans("/p", 10);
        for start in [10, 20, 30] {
            let mut of_start = plans.iter().filter(|plan| plan.start == start);
            let silent = of_start.clone().filter(|plan| !plan.bookmarks).count();
            assert_eq!((of_start.clone().count(), silent), (4, 1));
            assert!(of_start.all(|plan| plan.part == Part::All));
        }
    }
}
