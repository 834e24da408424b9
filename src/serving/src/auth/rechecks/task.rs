//! The task of the rechecks: scans the leases, and starts the checks that are due.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::Rechecks;
use super::budget::BudgetMeter;
use super::check::RequirementCheck;
use super::contradiction::COMPARISON_PERIOD;
use super::queue::CheckQueue;
use crate::auth::explanation::Explanation;
use crate::auth::followed::AuthorizerState;
use crate::auth::leases::{ChangedAccess, CheckCause};
use crate::metrics::{AuthorizersLabel, Revocation};

/// From a change of roles to the checks that it causes. Collects changes that come in batches, and lets the API server's authorizer
/// learn of them.
pub(super) const SETTLING_TIME: Duration = Duration::from_secs(1);

/// An answer may be this old and still say nothing about a change of roles that the gateway has just seen.
const LAG_MAX: Duration = Duration::from_secs(5);

/// Decisions that are evaluated at a stretch.
const EVALUATED_MAX: usize = 256;

/// Bounds of the time between two scans, which is otherwise a thirtieth of the interval.
const TICK_MIN: Duration = Duration::from_millis(50);

const TICK_MAX: Duration = Duration::from_secs(1);

/// The checks that wait or are running. Those after events have permits of their own.
struct CheckQueues {
    events: CheckQueue,
    routine: CheckQueue,
    /// Checks that ask upstream nothing do not wait for those that do.
    local: CheckQueue,
    budget: BudgetMeter,
}

impl Rechecks {
    /// Scans the leases and runs their checks. Never returns.
    pub async fn run(self: &Arc<Self>) {
        let mut queues = CheckQueues {
            events: CheckQueue::new(),
            routine: CheckQueue::new(),
            local: CheckQueue::new(),
            budget: BudgetMeter::new(self.budget, Instant::now()),
        };
        let mut tick = tokio::time::interval(self.tick());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let comparisons = async {
            loop {
                tokio::time::sleep(COMPARISON_PERIOD).await;
                self.compare_shared().await;
            }
        };
        tokio::pin!(comparisons);
        // A task before this one may have ended.
        let has_changes = !self.changes.lock().is_empty();
        let mut settled_at = has_changes.then(|| Instant::now() + SETTLING_TIME);
        loop {
            // Every branch is cancel-safe.
            tokio::select! {
                _ = tick.tick() => self.scan(&mut queues),
                Some(()) = queues.events.end_one() => {}
                Some(()) = queues.routine.end_one() => {}
                Some(()) = queues.local.end_one() => {}
                () = self.change.notified() => {
                    settled_at.get_or_insert_with(|| Instant::now() + SETTLING_TIME);
                }
                () = until(settled_at) => {
                    let is_done = self.apply_changes().await;
                    settled_at = (!is_done).then(|| Instant::now() + SETTLING_TIME);
                    self.scan(&mut queues);
                }
                () = &mut comparisons => {}
            }
        }
    }

    /// Makes the accesses due that roles explained and explain no longer. The API server's authorizer also learns of changes by a watch, so
    /// this runs a second after a change. Decisions of that second may be outdated, so they are invalidated again. `false` if it has to be
    /// done again, because the roles are not all known now.
    async fn apply_changes(&self) -> bool {
        // Roles that are not known explain nothing; that is no reason to ask about everything.
        if !self.decisions.policy().is_current() {
            return false;
        }
        let scopes = std::mem::take(&mut *self.changes.lock());
        self.decisions.forget(&scopes);
        let accesses = self.leases().changed_accesses(&scopes);
        let (mut doubtful, mut explained) = (Vec::new(), Vec::new());
        for part in accesses.chunks(EVALUATED_MAX) {
            for access in part {
                match self.judge(access) {
                    Judgement::Unchanged => {}
                    Judgement::Doubtful => doubtful.push((access.key.clone(), Instant::now())),
                    Judgement::Unsure => {
                        doubtful.push((access.key.clone(), access.asked_at + LAG_MAX));
                    }
                    Judgement::Explained => explained.push(access.key.clone()),
                }
            }
            tokio::task::yield_now().await;
        }
        if !self.decisions.policy().is_current() {
            self.changes.lock().extend(scopes);
            return false;
        }
        let mut leases = self.leases();
        for (key, at) in doubtful {
            leases.expect_access(key, at);
        }
        for key in explained {
            leases.explain_access(key);
        }
        true
    }

    fn judge(&self, access: &ChangedAccess) -> Judgement {
        let is_recent = access.has_changed && access.asked_at.elapsed() < LAG_MAX;
        let policy = self.decisions.policy();
        let is_explained = policy.explains(&access.key.user, &access.key.access);
        match access.explanation {
            _ if access.has_changed && access.is_impersonated => Judgement::Doubtful,
            Explanation::Roles if is_explained => Judgement::Unchanged,
            Explanation::Roles => Judgement::Doubtful,
            Explanation::NodeRules => Judgement::Unchanged,
            Explanation::None if is_explained => Judgement::Explained,
            // It may have rested on a role that was gone before it was seen here.
            Explanation::None if is_recent => Judgement::Unsure,
            Explanation::None => Judgement::Unchanged,
        }
    }

    fn scan(self: &Arc<Self>, queues: &mut CheckQueues) {
        let now = Instant::now();
        let denied = std::mem::take(&mut *self.denied.lock());
        let coverage = self.decisions.coverage();
        let sweep_max = queues.budget.available(self.metrics.permitted_reads(), now);
        let mut leases = self.leases();
        if !denied.is_empty() {
            leases.expect_users(&denied, now);
        }
        let scan = leases.scan(self.followed.authorizers(), now);
        let swept = leases.offer_due(coverage, sweep_max, now, |due| {
            let queue = match due.cause {
                CheckCause::Event => &mut queues.events,
                CheckCause::Local => &mut queues.local,
                CheckCause::Expired | CheckCause::Retry | CheckCause::Sweep => &mut queues.routine,
            };
            queue.accept(due.payer, || {
                let requirement = due.requirement();
                RequirementCheck {
                    key: requirement.key(),
                    requirement,
                    cause: due.cause,
                    number: due.number,
                    rechecks: Arc::clone(self),
                    is_done: false,
                }
            })
        });
        drop(leases);
        queues.budget.spend(swept);
        queues.events.start();
        queues.routine.start();
        queues.local.start();
        self.record_revocations(Revocation::GraceOver, scan.revoked);
        let oldest = scan.oldest.map_or(Duration::ZERO, |oldest| now - oldest);
        self.metrics.oldest_confirmation.set(oldest.as_secs_f64());
        self.metrics
            .review_budget
            .set(queues.budget.rate().unwrap_or(f64::INFINITY));
        self.metrics
            .upstream
            .set(match self.followed.authorizers() {
                AuthorizerState::Transparent => AuthorizersLabel::Transparent,
                AuthorizerState::Opaque => AuthorizersLabel::Opaque,
            });
        self.metrics
            .leases
            .set(i64::try_from(scan.held).unwrap_or(i64::MAX));
    }

    fn tick(&self) -> Duration {
        (self.times.interval / 30).clamp(TICK_MIN, TICK_MAX)
    }
}

/// What a change of roles means for a decision.
enum Judgement {
    Unchanged,
    /// It may be another one now.
    Doubtful,
    /// It may be another one, and is too young to tell.
    Unsure,
    /// Roles explain what they did not explain before.
    Explained,
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
