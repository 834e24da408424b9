//! The check of one requirement.

use std::sync::Arc;

use tokio::time::Instant;

use super::{CheckResult, Rechecks};
use crate::auth::leases::{Requirement, RequirementKey};
use crate::metrics::Recheck;

/// A check of a requirement, which waits or is running.
pub(super) struct RequirementCheck {
    pub(super) key: RequirementKey,
    pub(super) requirement: Requirement,
    pub(super) rechecks: Arc<Rechecks>,
    pub(super) is_done: bool,
}

impl RequirementCheck {
    pub(super) async fn run(mut self) {
        let result = self.rechecks.check(&self.requirement).await;
        self.is_done = true;
        let metrics = &self.rechecks.metrics;
        let now = Instant::now();
        match result {
            CheckResult::Confirmed(at) => {
                metrics.rechecks.inc(Recheck::Confirmed);
                self.rechecks.leases().confirm(&self.key, at, now);
            }
            CheckResult::Refused(reason) => {
                metrics.rechecks.inc(Recheck::Refused);
                let count = self.rechecks.leases().refuse(&self.key);
                self.rechecks.record_revocations(reason, count);
            }
            CheckResult::Failed => {
                metrics.rechecks.inc(Recheck::Failed);
                self.rechecks.leases().fail(&self.key, now);
            }
        }
    }
}

/// A check that panics, or is dropped with the task, counts as failed.
impl Drop for RequirementCheck {
    fn drop(&mut self) {
        if !self.is_done {
            self.rechecks.leases().fail(&self.key, Instant::now());
        }
    }
}
