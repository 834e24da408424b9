//! Checks the requirements of open streams again: at an interval, and one second after changes of roles. One task owns the queue of
//! checks; it scans the leases, starts the checks that are due, and revokes leases whose requirements are no longer met.

mod check;
mod queue;
mod task;

use std::pin::Pin;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::authenticator::Authenticator;
use super::caller::{BearerToken, Credential};
use super::changes::{RoleScope, ScopeSet};
use super::decisions::Decisions;
use super::lease::Lease;
use super::leases::{Confirmation, LeaseKey, Leases, RecheckTimes, Requirement};
use super::question::{AccessQuestion, QuestionIdentity};
use super::token_review::TokenVerdict;
use super::upstream::ReviewError;
use crate::fairness::Peer;
use crate::metrics::{AuthorizationMetrics, Label, Revocation};

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

    /// Notifies that pods or service accounts with these uids are gone.
    pub fn bound_objects_deleted(&self, uids: Vec<Box<str>>) {
        drop(uids);
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
            Requirement::Certificate {
                credential, payer, ..
            } => {
                let at = Instant::now();
                match self.credentials.is_trusted(credential, *payer).await {
                    Some(true) => CheckResult::Confirmed(at),
                    Some(false) => CheckResult::Refused(Revocation::Unauthenticated),
                    None => CheckResult::Failed,
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

#[cfg(test)]
mod tests;
