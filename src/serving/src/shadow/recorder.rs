//! Counts and logs what comparisons find.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use super::object::ComparedObject;
use crate::log_limit::LogLimit;
use crate::metrics::{ByLabel, Label as _, ShadowOutcome, VerbLabel};
use crate::resource::{Gvr, ResourceVersion};

/// Resources and outcomes whose log lines are limited each by itself. Once there are more, all begin anew.
const LIMITS_MAX: usize = 1_024;
/// Length of a logged name. Upstream may send longer ones.
const KEY_LEN_MAX: usize = 512;

/// Limits the log lines of each resource and outcome.
#[derive(Debug, Default)]
pub(super) struct DifferenceLog(HashMap<(Gvr, ShadowOutcome), LogLimit>);

impl DifferenceLog {
    fn due(&mut self, resource: &Gvr, outcome: ShadowOutcome, now: Instant) -> Option<u64> {
        let key = (resource.clone(), outcome);
        if self.0.len() >= LIMITS_MAX && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.entry(key).or_default().due(now)
    }
}

/// The beginning of a name.
fn shown(key: &str) -> &str {
    let end = (0..=KEY_LEN_MAX).rev().find(|at| key.is_char_boundary(*at));
    end.and_then(|end| key.get(..end)).unwrap_or_default()
}

/// One difference. It names an object, and holds nothing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(super) outcome: ShadowOutcome,
    /// The object's name, after its namespace and a slash if it has one; empty if the answer as a whole differs.
    pub(super) key: Box<str>,
    /// The versions of the object on both sides.
    pub(super) upstream: Option<ResourceVersion>,
    pub(super) memory: Option<ResourceVersion>,
}

/// Records the comparisons of one request.
#[derive(Debug)]
pub(crate) struct ShadowRecorder {
    resource: Gvr,
    verb: VerbLabel,
    counters: ByLabel<ShadowOutcome>,
    log: Arc<Mutex<DifferenceLog>>,
}

impl Difference {
    pub(super) fn missing(upstream: &ComparedObject) -> Self {
        Self {
            outcome: ShadowOutcome::Missing,
            key: upstream.key.clone(),
            upstream: Some(upstream.version),
            memory: None,
        }
    }

    pub(super) fn extra(memory: &ComparedObject) -> Self {
        Self {
            outcome: ShadowOutcome::Extra,
            key: memory.key.clone(),
            upstream: None,
            memory: Some(memory.version),
        }
    }

    pub(super) fn content(upstream: &ComparedObject, memory: &ComparedObject) -> Self {
        Self {
            outcome: ShadowOutcome::Content,
            key: upstream.key.clone(),
            upstream: Some(upstream.version),
            memory: Some(memory.version),
        }
    }

    /// A difference of no single object.
    pub(crate) fn of_answer(outcome: ShadowOutcome) -> Self {
        Self {
            outcome,
            key: Box::default(),
            upstream: None,
            memory: None,
        }
    }
}

impl ShadowRecorder {
    pub(super) fn new(
        resource: Gvr,
        verb: VerbLabel,
        counters: ByLabel<ShadowOutcome>,
        log: Arc<Mutex<DifferenceLog>>,
    ) -> Self {
        Self {
            resource,
            verb,
            counters,
            log,
        }
    }

    pub(crate) fn count(&self, outcome: ShadowOutcome, count: u64) {
        self.counters.add(outcome, count);
    }

    /// Records that there was nothing to compare with, or no room for it.
    pub(crate) fn not_comparable(&self, reason: &'static str) {
        self.count(ShadowOutcome::NotComparable, 1);
        debug!(
            resource = %self.resource,
            verb = self.verb.as_str(),
            reason,
            "a forwarded answer is not compared"
        );
    }

    /// Records a comparison that found these differences, or none.
    pub(crate) fn record(&self, differences: &[Difference]) {
        if differences.is_empty() {
            self.count(ShadowOutcome::Equal, 1);
        }
        for difference in differences {
            self.differs(difference);
        }
    }

    pub(crate) fn differs(&self, difference: &Difference) {
        let Difference {
            outcome,
            key,
            upstream,
            memory,
        } = difference;
        self.count(*outcome, 1);
        let Some(differences) = self
            .log
            .lock()
            .due(&self.resource, *outcome, Instant::now())
        else {
            return;
        };
        warn!(
            resource = %self.resource,
            verb = self.verb.as_str(),
            kind = outcome.as_str(),
            key = ?shown(key),
            upstream_version = upstream.map(|version| version.0),
            memory_version = memory.map(|version| version.0),
            differences,
            "memory would have answered differently than upstream"
        );
    }
}

impl Drop for ShadowRecorder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            error!(resource = %self.resource, verb = self.verb.as_str(), "a comparison panicked");
            self.not_comparable("it panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(shown("n/a"), "n/a");
        let long = format!("a{}", "\u{e4}".repeat(KEY_LEN_MAX));
        assert_eq!(shown(&long).len(), KEY_LEN_MAX - 1);
    }

    #[test]
    fn each_resource_and_outcome_has_its_own_lines() {
        let (mut log, now) = (DifferenceLog::default(), Instant::now());
        let pods = Gvr::new("", "v1", "pods");
        assert_eq!(log.due(&pods, ShadowOutcome::Missing, now), Some(1));
        assert_eq!(log.due(&pods, ShadowOutcome::Missing, now), None);
        assert_eq!(log.due(&pods, ShadowOutcome::Extra, now), Some(1));
    }
}
