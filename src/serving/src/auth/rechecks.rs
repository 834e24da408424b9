//! Checks the requirements of open streams again: at an interval, and one second after changes of roles. One task owns the queue of
//! checks; it scans the leases, starts the checks that are due, and revokes leases whose requirements are no longer met.

mod budget;
mod check;
mod contradiction;
mod queue;
mod task;

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::access_review::AccessVerdict;
use super::authenticator::Authenticator;
use super::caller::{BearerToken, Credential};
use super::changes::{RoleScope, ScopeSet, UserHash};
use super::decisions::Decisions;
use super::followed::Followed;
use super::lease::Lease;
use super::leases::{
    Confirmation, LeaseKey, Leases, LivenessCheck, RecheckTimes, Requirement, RequirementKey,
};
use super::question::{AccessQuestion, QuestionIdentity, QuestionKey};
use super::token_cache::DatedVerdict;
use super::upstream::ReviewError;
use super::user::User;
use crate::config::ReviewBudget;
use crate::fairness::Peer;
use crate::metrics::{AuthorizationMetrics, Label, ReviewCause, Revocation};

/// Decides whether credentials are still valid. Tests replace it.
pub trait CredentialAuthority: Send + Sync + std::fmt::Debug + 'static {
    /// The user of the token by a new review, without looking into a cache; `None` if the token is not valid.
    fn recheck_token<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = DatedVerdict> + Send + 'a>>;

    /// Marks a token as invalid in the cache, because upstream has rejected it.
    fn forget<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// Whether a certificate is valid by the current authorities; `None` if that could not be checked. `payer` pays for the check.
    fn is_trusted<'a>(
        &'a self,
        credential: &'a Credential,
        payer: Peer,
    ) -> Pin<Box<dyn Future<Output = Option<bool>> + Send + 'a>>;
}

impl CredentialAuthority for Authenticator {
    fn recheck_token<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = DatedVerdict> + Send + 'a>> {
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
        payer: Peer,
    ) -> Pin<Box<dyn Future<Output = Option<bool>> + Send + 'a>> {
        Box::pin(self.is_certificate_trusted(credential, payer))
    }
}

/// The leases, and what their checks need.
#[derive(Debug)]
pub struct Rechecks {
    leases: Mutex<Leases>,
    decisions: Arc<Decisions>,
    credentials: Arc<dyn CredentialAuthority>,
    followed: Arc<Followed>,
    /// Changes of roles whose consequences have not been looked for yet.
    changes: Mutex<ScopeSet>,
    change: Notify,
    /// Users who were denied an access that was allowed before.
    denied: Mutex<HashSet<UserHash>>,
    budget: ReviewBudget,
    times: RecheckTimes,
    metrics: AuthorizationMetrics,
}

/// The result of a check.
enum CheckResult {
    /// The requirement was met when the question was sent.
    Confirmed(Confirmation),
    /// The requirement is not met.
    Refused(Revocation),
    /// The token in whose name a shared access was asked about is no longer valid.
    AskerRejected(BearerToken),
    /// The check had no result.
    Failed,
}

impl Rechecks {
    /// Rechecks without leases. Accesses are checked with `decisions`, credentials with `credentials`.
    #[must_use]
    pub fn new(
        times: RecheckTimes,
        budget: ReviewBudget,
        decisions: Arc<Decisions>,
        credentials: Arc<dyn CredentialAuthority>,
        metrics: AuthorizationMetrics,
    ) -> Self {
        let followed = Arc::clone(decisions.followed());
        Self {
            leases: Mutex::new(Leases::new(times)),
            decisions,
            credentials,
            followed,
            changes: Mutex::default(),
            change: Notify::new(),
            denied: Mutex::default(),
            budget,
            times,
            metrics,
        }
    }

    /// The lease with this key, or a new one; see [`Leases::lease`].
    pub fn lease(
        &self,
        key: LeaseKey,
        verdict: &Arc<AccessVerdict>,
        requirements: Vec<(Requirement, Confirmation)>,
    ) -> Lease {
        self.leases()
            .lease(key, verdict, requirements, Instant::now())
    }

    /// The lease of a stream that resumes; see [`Leases::resumed`].
    pub fn resumed(
        &self,
        key: &LeaseKey,
        credential: Option<RequirementKey>,
    ) -> Option<(Lease, Arc<AccessVerdict>)> {
        let resumed = self.leases().resumed(key, credential, Instant::now())?;
        self.metrics.resumed.inc();
        Some(resumed)
    }

    /// Notifies of a change of roles: the decisions that it may affect are invalidated now, and the requirements that it may affect are
    /// looked at after `SETTLING_TIME`.
    pub fn roles_changed(&self, scope: RoleScope) {
        let mut scopes = ScopeSet::default();
        scopes.insert(scope.clone());
        self.decisions.forget(&scopes);
        self.changes.lock().insert(scope);
        self.change.notify_one();
    }

    /// Notifies that pods or service accounts with these uids are gone.
    pub fn bound_objects_deleted(&self, uids: Vec<Box<str>>) {
        self.leases().delete_bound_objects(uids, Instant::now());
    }

    /// Notifies that pods or service accounts were listed; see [`Leases::list_bound_objects`].
    pub fn bound_objects_listed(&self, is_live: LivenessCheck) {
        self.leases().list_bound_objects(is_live, Instant::now());
    }

    /// Whether streams may depend on this token.
    #[must_use]
    pub fn may_depend_on(&self, token: &BearerToken) -> bool {
        self.leases().may_depend_on(token)
    }

    /// A review found that this token is not valid: what depends on it is checked soon.
    pub fn token_rejected(&self, token: &BearerToken) {
        self.leases().reject_token(token);
    }

    /// A new request was denied this access: streams with the same access are checked.
    pub fn request_denied(&self, key: &QuestionKey) {
        self.leases().expect_denied(key, Instant::now());
    }

    /// A user was denied what was allowed before. The client may return with another access, such as a list before its watch, so all
    /// decisions about the user are invalidated.
    fn user_denied(&self, user: &User) {
        let user = UserHash::of(user);
        self.decisions.forget_user(user);
        self.denied.lock().insert(user);
    }

    fn count_review(&self, requirement: &Requirement, cause: ReviewCause) {
        match requirement {
            Requirement::Token { .. } => self.metrics.token_reviews.inc(cause),
            Requirement::Access(question) => {
                let (user, access) = (&question.key.user, &question.key.access);
                let is_local =
                    self.times.decides_by_roles && self.decisions.policy().explains(user, access);
                if !is_local {
                    self.metrics.access_reviews.inc(cause);
                }
            }
            Requirement::Certificate { .. } => {}
        }
    }

    fn record_revocations(&self, reason: Revocation, count: usize) {
        for _ in 0..count {
            self.metrics.revocations.inc(reason);
        }
        if count > 0 {
            let reason = reason.as_str();
            tracing::info!(reason, leases = count, "permission of open streams revoked");
        }
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock()
    }

    async fn check(&self, requirement: &Requirement) -> CheckResult {
        let began_at = Instant::now();
        let confirmed = |at| CheckResult::Confirmed(Confirmation::credential(at));
        match requirement {
            Requirement::Access(question) => self.check_access(question).await,
            Requirement::Token { token, user, .. } => {
                // The review may have been sent for somebody else, and earlier.
                let DatedVerdict { verdict, asked_at } =
                    self.credentials.recheck_token(token).await;
                match verdict {
                    Ok(Some(current)) if *current == **user => confirmed(asked_at),
                    Ok(_) => CheckResult::Refused(Revocation::Unauthenticated),
                    Err(_) => CheckResult::Failed,
                }
            }
            Requirement::Certificate {
                credential, payer, ..
            } => match self.credentials.is_trusted(credential, *payer).await {
                Some(true) => confirmed(began_at),
                Some(false) => CheckResult::Refused(Revocation::Unauthenticated),
                None => CheckResult::Failed,
            },
        }
    }

    async fn check_access(&self, question: &AccessQuestion) -> CheckResult {
        let error = match self.decisions.recheck(question).await {
            Ok(decision) if decision.verdict.is_allowed => {
                return CheckResult::Confirmed(Confirmation {
                    at: decision.asked_at,
                    is_doubtful: !self.decisions.is_current(&decision, &question.key),
                    explanation: decision.explanation,
                });
            }
            Ok(_) => {
                self.user_denied(&question.key.user);
                return CheckResult::Refused(Revocation::Denied);
            }
            Err(error) => error,
        };
        match (&question.identity, error) {
            (QuestionIdentity::Caller { token, .. }, ReviewError::Unauthorized) => {
                self.credentials.forget(token).await;
                if question.key.is_shared() {
                    return CheckResult::AskerRejected(token.clone());
                }
                self.token_rejected(token);
                self.decisions.forget_one(&question.key).await;
                CheckResult::Refused(Revocation::Unauthenticated)
            }
            (_, ReviewError::SelfReviewForbidden) => {
                // None of the accesses that were allowed to this caller can be confirmed any more.
                self.user_denied(&question.key.user);
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

#[cfg(test)]
mod tests;
