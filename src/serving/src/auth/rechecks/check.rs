//! The check of one requirement.

use std::sync::Arc;
use std::time::Duration;

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
        let began_at = Instant::now();
        let check = self.rechecks.check(&self.requirement);
        let result = tokio::time::timeout(CHECK_TIME, check)
            .await
            .unwrap_or(CheckResult::Failed);
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
                self.rechecks.leases().fail(&self.key, began_at, now);
            }
        }
    }
}

/// A check that panics, or is dropped with the task, counts as failed.
impl Drop for RequirementCheck {
    fn drop(&mut self) {
        if !self.is_done {
            let now = Instant::now();
            self.rechecks.leases().fail(&self.key, now, now);
        }
    }
}

/// A check that takes longer counts as failed.
const CHECK_TIME: Duration = Duration::from_secs(30);
