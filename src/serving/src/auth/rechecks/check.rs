//! The check of one requirement.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{CheckResult, Rechecks};
use crate::auth::leases::{CheckCause, Requirement, RequirementKey};
use crate::metrics::{Recheck, ReviewCause, Revocation};

/// A check of a requirement, which waits or is running.
pub(super) struct RequirementCheck {
    pub(super) key: RequirementKey,
    pub(super) requirement: Requirement,
    pub(super) cause: CheckCause,
    pub(super) number: u64,
    pub(super) rechecks: Arc<Rechecks>,
    pub(super) is_done: bool,
}

impl RequirementCheck {
    pub(super) async fn run(mut self) {
        if !self.rechecks.leases().is_wanted(&self.key, self.number) {
            return;
        }
        let began_at = Instant::now();
        let check = self.rechecks.check(&self.requirement);
        let result = tokio::time::timeout(CHECK_TIME, check)
            .await
            .unwrap_or(CheckResult::Failed);
        self.is_done = true;
        self.rechecks
            .count_review(&self.requirement, cause(self.cause));
        self.end(result, began_at);
    }

    fn end(&self, result: CheckResult, began_at: Instant) {
        let rechecks = &self.rechecks;
        let now = Instant::now();
        let outcome = match result {
            CheckResult::Confirmed(confirmation) => {
                let mut leases = rechecks.leases();
                leases.confirm(&self.key, self.number, confirmation, now);
                Recheck::Confirmed
            }
            CheckResult::Refused(reason) => {
                let count = rechecks.leases().refuse(&self.key);
                rechecks.record_revocations(reason, count);
                Recheck::Refused
            }
            CheckResult::AskerRejected(token) => {
                let mut leases = rechecks.leases();
                let count = leases.reject_asker(&self.key, self.number, &token, now);
                drop(leases);
                rechecks.record_revocations(Revocation::Unauthenticated, count);
                Recheck::Refused
            }
            CheckResult::Failed => {
                let mut leases = rechecks.leases();
                leases.fail(&self.key, self.number, began_at, now);
                Recheck::Failed
            }
        };
        rechecks.metrics.rechecks.inc(outcome);
    }
}

/// A check that panics, or is dropped with the task, counts as failed.
impl Drop for RequirementCheck {
    fn drop(&mut self) {
        if !self.is_done {
            let now = Instant::now();
            let mut leases = self.rechecks.leases();
            leases.fail(&self.key, self.number, now, now);
        }
    }
}

const fn cause(cause: CheckCause) -> ReviewCause {
    match cause {
        CheckCause::Event => ReviewCause::Event,
        CheckCause::Expired => ReviewCause::Expired,
        CheckCause::Retry => ReviewCause::Retry,
        CheckCause::Sweep | CheckCause::Local => ReviewCause::Sweep,
    }
}

/// A check that takes longer counts as failed.
const CHECK_TIME: Duration = Duration::from_secs(30);
