//! Checks again what open streams stand on: at an interval, and at once after changes of roles.

mod queue;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

/// Knows whether credentials count; tests have their own.
pub trait CredentialAuthority: Send + Sync + std::fmt::Debug + 'static {
    /// Whose the token is now, whatever is remembered; `None` if it does not count.
    fn review_afresh<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>>;

    /// Upstream has refused the token: what is remembered of it no longer counts.
    fn forget<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// Whether a certificate counts by the authorities as they are now.
    fn is_trusted<'a>(
        &'a self,
        credential: &'a Credential,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>>;
}

impl CredentialAuthority for Authenticator {
    fn review_afresh<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>> {
        Box::pin(self.tokens().user_afresh(token))
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

/// Leases, and what is checked for them.
#[derive(Debug)]
pub struct Rechecks {
    leases: Mutex<Leases>,
    decisions: Arc<Decisions>,
    credentials: Arc<dyn CredentialAuthority>,
    /// Changes of roles that nothing was checked for yet.
    changes: Mutex<ScopeSet>,
    change: Notify,
    times: RecheckTimes,
    metrics: AuthorizationMetrics,
}

/// What came of a check.
enum CheckResult {
    Confirmed(Instant),
    Refused(Revocation),
    Failed,
}

impl Rechecks {
    /// Checks decisions and credentials here.
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

    /// See [`Leases::lease`].
    pub fn lease(
        &self,
        key: LeaseKey,
        requirements: impl FnOnce() -> Vec<(Requirement, Confirmation)>,
    ) -> Lease {
        self.leases().lease(key, requirements, Instant::now())
    }

    /// Roles have changed: decisions that this may matter to are forgotten now, and those that streams stand on are asked again
    /// soon.
    pub fn roles_changed(&self, scope: RoleScope) {
        let mut scopes = ScopeSet::default();
        scopes.insert(scope.clone());
        self.decisions.forget(&scopes);
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.insert(scope);
        drop(changes);
        self.change.notify_one();
    }

    /// Has no end.
    pub async fn run(self: &Arc<Self>) {
        let mut queue = CheckQueue::new();
        let mut tick = tokio::time::interval(self.tick());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut settled_at = None;
        loop {
            // All of these may be cancelled.
            tokio::select! {
                _ = tick.tick() => self.scan(&mut queue),
                Some(()) = queue.end_one() => {}
                () = self.change.notified() => {
                    settled_at.get_or_insert_with(|| Instant::now() + SETTLING_TIME);
                }
                () = until(settled_at) => {
                    settled_at = None;
                    self.doubt();
                    self.scan(&mut queue);
                }
            }
        }
    }

    /// The API server's own authorizer hears of changes by a watch as well, so a moment goes by before it is asked. Whatever was
    /// decided in that moment is forgotten once more.
    fn doubt(&self) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let scopes = std::mem::take(&mut *changes);
        drop(changes);
        self.decisions.forget(&scopes);
        self.leases().doubt(&scopes, Instant::now());
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
        self.revoked(Revocation::GraceOver, scan.revoked);
        self.metrics
            .leases
            .set(i64::try_from(scan.held).unwrap_or(i64::MAX));
    }

    fn tick(&self) -> Duration {
        (self.times.interval / 30).clamp(TICK_MIN, TICK_MAX)
    }

    fn revoked(&self, reason: Revocation, count: usize) {
        for _ in 0..count {
            self.metrics.revocations.inc(reason);
        }
        if count > 0 {
            let reason = crate::metrics::Label::as_str(reason);
            tracing::info!(reason, leases = count, "permission of open streams revoked");
        }
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        // Nothing under the lock panics half way.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn check(&self, requirement: &Requirement) -> CheckResult {
        match requirement {
            Requirement::Access(question) => self.check_access(question).await,
            Requirement::Token { token, user, .. } => {
                let at = Instant::now();
                match self.credentials.review_afresh(token).await {
                    Ok(Some(now)) if *now == **user => CheckResult::Confirmed(at),
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
        let error = match self.decisions.decide_afresh(question).await {
            Ok(decision) if decision.verdict.is_allowed => {
                return CheckResult::Confirmed(decision.asked_at);
            }
            Ok(_) => {
                // The client may come back with another question, such as a list before its watch.
                self.roles_changed(RoleScope::User(question.key.user.name.clone()));
                return CheckResult::Refused(Revocation::Denied);
            }
            Err(error) => error,
        };
        match (&question.asker, error) {
            (QuestionIdentity::Caller { token, .. }, ReviewError::Unauthorized) => {
                self.decisions.forget_one(&question.key).await;
                self.credentials.forget(token).await;
                CheckResult::Refused(Revocation::Unauthenticated)
            }
            (_, ReviewError::SelfReviewForbidden) => {
                // Nothing that the caller was allowed could be confirmed.
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

/// A requirement that is to be checked, or is being checked.
struct RequirementCheck {
    key: RequirementKey,
    requirement: Requirement,
    rechecks: Arc<Rechecks>,
    is_done: bool,
}

impl RequirementCheck {
    async fn run(mut self) {
        let outcome = self.rechecks.check(&self.requirement).await;
        self.is_done = true;
        let metrics = &self.rechecks.metrics;
        let now = Instant::now();
        match outcome {
            CheckResult::Confirmed(at) => {
                metrics.rechecks.inc(Recheck::Confirmed);
                self.rechecks.leases().confirm(&self.key, at, now);
            }
            CheckResult::Refused(reason) => {
                metrics.rechecks.inc(Recheck::Refused);
                let count = self.rechecks.leases().refuse(&self.key);
                self.rechecks.revoked(reason, count);
            }
            CheckResult::Failed => {
                metrics.rechecks.inc(Recheck::Failed);
                self.rechecks.leases().fail(&self.key, now);
            }
        }
    }
}

/// A check that panics, or that is dropped with the task, has failed.
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

/// Changes of roles come in batches.
const SETTLING_TIME: Duration = Duration::from_secs(1);

const TICK_MIN: Duration = Duration::from_millis(50);
const TICK_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
