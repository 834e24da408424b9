//! Counts and logs what comparisons find.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::object::ComparedObject;
use crate::log_limit::LogLimit;
use crate::metrics::{ByLabel, Label as _, ShadowOutcome, VerbLabel};
use crate::resource::{Gvr, ResourceVersion};

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
    log: Arc<Mutex<LogLimit>>,
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
        log: Arc<Mutex<LogLimit>>,
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
        let Some(differences) = self.log.lock().due(Instant::now()) else {
            return;
        };
        warn!(
            resource = %self.resource,
            verb = self.verb.as_str(),
            kind = outcome.as_str(),
            %key,
            upstream_version = upstream.map(|version| version.0),
            memory_version = memory.map(|version| version.0),
            differences,
            "memory would have answered differently than upstream"
        );
    }
}
