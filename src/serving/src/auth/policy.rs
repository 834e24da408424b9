//! Evaluates the roles and bindings that the gateway watches, as an authorizer, and to explain decisions of upstream. It does so only
//! while the watches have delivered all of them and are current.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;

use super::access::Access;
use super::access_review::AccessVerdict;
use super::authorizer::Authorizer;
use super::question::AccessQuestion;
use super::rbac::{RbacDecision, RbacPolicy};
use super::upstream::{ReviewError, ReviewPurpose};
use super::user::{MASTERS, User};

/// The roles and bindings that one run of the feed follows. Each run has its own: a late notification of an earlier run changes only what
/// nobody reads any more.
#[derive(Debug, Default)]
pub struct FollowedPolicy(RwLock<RbacPolicy>);

impl FollowedPolicy {
    /// Changes a role or a binding, and returns what `change` returns.
    pub fn update(&self, change: impl FnOnce(&mut RbacPolicy) -> bool) -> bool {
        change(&mut self.0.write())
    }
}

/// The roles and bindings that were last known completely, and whether they may be used for decisions.
#[derive(Debug)]
pub struct PolicyStore {
    /// `None` until all of them were listed once.
    policy: RwLock<Option<Arc<FollowedPolicy>>>,
    is_current: watch::Sender<bool>,
}

impl Default for PolicyStore {
    fn default() -> Self {
        Self {
            policy: RwLock::default(),
            is_current: watch::Sender::new(false),
        }
    }
}

impl PolicyStore {
    /// From now on decides from `policy`, which has all roles and bindings. Returns whether it differs from the previous one; false if
    /// there was none.
    pub fn replace(&self, policy: Arc<FollowedPolicy>) -> bool {
        let previous = self.policy.write().replace(Arc::clone(&policy));
        previous.is_some_and(|previous| {
            !Arc::ptr_eq(&previous, &policy) && *previous.0.read() != *policy.0.read()
        })
    }

    /// Sets whether all roles and bindings are present and their watches are in contact with upstream. They are used only while this is
    /// so. Returns whether it was otherwise before.
    pub fn set_current(&self, is_current: bool) -> bool {
        self.is_current.send_replace(is_current) != is_current
    }

    /// Whether all roles and bindings are present and their watches are in contact with upstream.
    #[must_use]
    pub fn is_current(&self) -> bool {
        *self.is_current.borrow()
    }

    /// Whether roles allow a user's access, as far as is known now; false while they are not current.
    #[must_use]
    pub fn explains(&self, user: &User, access: &Access) -> bool {
        if !self.is_current() {
            return false;
        }
        let policy = self.policy.read();
        let Some(policy) = &*policy else {
            return false;
        };
        user.is_in(MASTERS) || policy.0.read().is_allowed(user, access)
    }

    async fn evaluate(&self, question: &AccessQuestion) -> Result<AccessVerdict, ReviewError> {
        let mut is_current = self.is_current.subscribe();
        let current = is_current.wait_for(|is_current| *is_current);
        match tokio::time::timeout(CURRENT_WAIT, current).await {
            Ok(Ok(_)) => {}
            // They did not become current in time, or the sender is gone.
            Ok(Err(_)) | Err(_) => return Err(not_current()),
        }
        let policy = self.policy.read().clone();
        let policy = policy.ok_or_else(not_current)?;
        let (user, access) = (&question.key.user, &question.key.access);
        if user.is_in(MASTERS) {
            return Ok(AccessVerdict {
                is_allowed: true,
                reason: String::new(),
            });
        }
        let (is_allowed, reason) = match policy.0.read().decide(user, access) {
            RbacDecision::Allowed(reason) => (true, reason),
            RbacDecision::NotAllowed(reason) => (false, reason),
        };
        Ok(AccessVerdict { is_allowed, reason })
    }
}

fn not_current() -> ReviewError {
    ReviewError::Unavailable {
        reason: "roles and bindings are not current".to_owned(),
    }
}

impl Authorizer for PolicyStore {
    fn decide<'a>(
        &'a self,
        question: &'a AccessQuestion,
        _purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = Result<AccessVerdict, ReviewError>> + Send + 'a>> {
        Box::pin(self.evaluate(question))
    }
}

/// How long a request waits for the roles and bindings to become current.
const CURRENT_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
