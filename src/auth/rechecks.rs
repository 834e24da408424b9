//! Checks the requirements of open streams again: at an interval, and one second after changes of roles. One task owns the queue of
//! checks; it scans the leases, starts the checks that are due, and revokes leases whose requirements are no longer met.

mod queue;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

use super::authenticator::Authenticator;
use super::caller::{BearerToken, Credential};
use super::changes::{RoleScope, ScopeSet};
use super::decisions::Decisions;
use super::lease::Lease;
use super::leases::{Confirmation, LeaseKey, Leases, RecheckTimes, Requirement, RequirementKey};
use super::question::{AccessQuestion, QuestionIdentity};
use super::token_review::TokenVerdict;
use super::upstream::ReviewError;
use crate::metrics::{AuthorizationMetrics, Recheck, Revocation};

use queue::CheckQueue;

/// Decides whether credentials are still valid. Tests replace it.
pub trait CredentialAuthority: Send + Sync + std::fmt::Debug + 'static {
    /// The user of the token by a new review, without looking into a cache; `None` if the token is not valid.
    fn recheck_token<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>>;

    /// Marks a token as invalid in the cache, because upstream has rejected it.
    fn forget<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// Whether a certificate is valid by the current authorities.
    fn is_trusted<'a>(
        &'a self,
        credential: &'a Credential,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>>;
}

impl CredentialAuthority for Authenticator {
    fn recheck_token<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>> {
        Box::pin(self.tokens().recheck(token))
    }

    fn forget<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.tokens().forget(token))
    }

    fn is_trusted<'a>(
        &'a self,
        credential: &'a Credential,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(self.is_certificate_trusted(credential))
    }
}

/// The leases, and what their checks need.
#[derive(Debug)]
pub struct Rechecks {
    leases: Mutex<Leases>,
    decisions: Arc<Decisions>,
    credentials: Arc<dyn CredentialAuthority>,
    /// Scopes of role changes whose affected requirements have not been marked as due yet.
    changes: Mutex<ScopeSet>,
    change: Notify,
    times: RecheckTimes,
    metrics: AuthorizationMetrics,
}

/// The result of a check.
enum CheckResult {
    /// The requirement was met when the question was sent, at this time.
    Confirmed(Instant),
    /// The requirement is not met.
    Refused(Revocation),
    /// The check had no result.
    Failed,
}

impl Rechecks {
    /// Rechecks without leases. Accesses are checked with `decisions`, credentials with `credentials`.
    #[must_use]
    pub fn new(
        times: RecheckTimes,
        decisions: Arc<Decisions>,
        credentials: Arc<dyn CredentialAuthority>,
        metrics: AuthorizationMetrics,
    ) -> Self {
        Self {
            leases: Mutex::new(Leases::new(times)),
            decisions,
            credentials,
            changes: Mutex::default(),
            change: Notify::new(),
            times,
            metrics,
        }
    }

    /// The lease with this key, or a new one; see [`Leases::lease`].
    pub fn lease(
        &self,
        key: LeaseKey,
        requirements: impl FnOnce() -> Vec<(Requirement, Confirmation)>,
    ) -> Lease {
        self.leases().lease(key, requirements, Instant::now())
    }

    /// Notifies of a change of roles: the decisions that it may affect are invalidated now, and the requirements that it may affect are
    /// checked after `SETTLING_TIME`.
    pub fn roles_changed(&self, scope: RoleScope) {
        let mut scopes = ScopeSet::default();
        scopes.insert(scope.clone());
        self.decisions.forget(&scopes);
        let mut changes = self.changes.lock();
        changes.insert(scope);
        drop(changes);
        self.change.notify_one();
    }

    /// Scans the leases and runs their checks. Never returns.
    pub async fn run(self: &Arc<Self>) {
        let mut queue = CheckQueue::new();
        let mut tick = tokio::time::interval(self.tick());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut settled_at = None;
        loop {
            // Every branch is cancel-safe.
            tokio::select! {
                _ = tick.tick() => self.scan(&mut queue),
                Some(()) = queue.end_one() => {}
                () = self.change.notified() => {
                    settled_at.get_or_insert_with(|| Instant::now() + SETTLING_TIME);
                }
                () = until(settled_at) => {
                    settled_at = None;
                    self.mark_doubtful();
                    self.scan(&mut queue);
                }
            }
        }
    }

    /// Makes the requirements due that recent changes of roles may affect. The API server's authorizer also learns of changes by a watch,
    /// so this runs a second after a change. Decisions of that second may be outdated, so they are invalidated again.
    fn mark_doubtful(&self) {
        let mut changes = self.changes.lock();
        let scopes = std::mem::take(&mut *changes);
        drop(changes);
        self.decisions.forget(&scopes);
        self.leases().mark_doubtful(&scopes, Instant::now());
    }

    fn scan(self: &Arc<Self>, queue: &mut CheckQueue) {
        let now = Instant::now();
        let mut leases = self.leases();
        let scan = leases.scan(now);
        leases.offer_due(now, |requirement| {
            queue.accept(requirement.payer(), || RequirementCheck {
                key: requirement.key(),
                requirement: requirement.clone(),
                rechecks: Arc::clone(self),
                is_done: false,
            })
        });
        drop(leases);
        queue.start();
        self.record_revocations(Revocation::GraceOver, scan.revoked);
        self.metrics
            .leases
            .set(i64::try_from(scan.held).unwrap_or(i64::MAX));
    }

    fn tick(&self) -> Duration {
        (self.times.interval / 30).clamp(TICK_MIN, TICK_MAX)
    }

    fn record_revocations(&self, reason: Revocation, count: usize) {
        for _ in 0..count {
            self.metrics.revocations.inc(reason);
        }
        if count > 0 {
            let reason = crate::metrics::Label::as_str(reason);
            tracing::info!(reason, leases = count, "permission of open streams revoked");
        }
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock()
    }

    async fn check(&self, requirement: &Requirement) -> CheckResult {
        match requirement {
            Requirement::Access(question) => self.check_access(question).await,
            Requirement::Token { token, user, .. } => {
                let at = Instant::now();
                match self.credentials.recheck_token(token).await {
                    Ok(Some(current)) if *current == **user => CheckResult::Confirmed(at),
                    Ok(_) => CheckResult::Refused(Revocation::Unauthenticated),
                    Err(_) => CheckResult::Failed,
                }
            }
            Requirement::Certificate { credential, .. } => {
                let at = Instant::now();
                match self.credentials.is_trusted(credential).await {
                    true => CheckResult::Confirmed(at),
                    false => CheckResult::Refused(Revocation::Unauthenticated),
                }
            }
        }
    }

    async fn check_access(&self, question: &AccessQuestion) -> CheckResult {
        let error = match self.decisions.recheck(question).await {
            Ok(decision) if decision.verdict.is_allowed => {
                return CheckResult::Confirmed(decision.asked_at);
            }
            Ok(_) => {
                // The client may return with another access, such as a list before its watch, so all decisions about the user are
                // invalidated.
                self.roles_changed(RoleScope::User(question.key.user.name.clone()));
                return CheckResult::Refused(Revocation::Denied);
            }
            Err(error) => error,
        };
        match (&question.identity, error) {
            (QuestionIdentity::Caller { token, .. }, ReviewError::Unauthorized) => {
                self.decisions.forget_one(&question.key).await;
                self.credentials.forget(token).await;
                CheckResult::Refused(Revocation::Unauthenticated)
            }
            (_, ReviewError::SelfReviewForbidden) => {
                // None of the accesses that were allowed to this caller can be confirmed any more.
                self.roles_changed(RoleScope::User(question.key.user.name.clone()));
                CheckResult::Refused(Revocation::Denied)
            }
            (
                QuestionIdentity::Gateway
                | QuestionIdentity::Impersonated
                | QuestionIdentity::Caller { .. },
                _,
            ) => CheckResult::Failed,
        }
    }
}

/// A check of a requirement, which waits or is running.
struct RequirementCheck {
    key: RequirementKey,
    requirement: Requirement,
    rechecks: Arc<Rechecks>,
    is_done: bool,
}

impl RequirementCheck {
    async fn run(mut self) {
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

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// From a change of roles to the checks that it causes. Collects changes that come in batches, and lets the API server's authorizer
/// learn of them.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// Bounds of the time between two scans, which is otherwise a thirtieth of the interval.
const TICK_MIN: Duration = Duration::from_millis(50);
const TICK_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
