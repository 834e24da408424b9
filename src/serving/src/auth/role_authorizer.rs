//! Decides from roles, and asks upstream about what no role allows: its other authorizers may allow it, as the node authorizer does for
//! kubelets.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::access_review::AccessVerdict;
use super::authorizer::Authorizer;
use super::policy::PolicyStore;
use super::question::AccessQuestion;
use super::upstream::{ReviewError, ReviewPurpose};

/// Roles first, then upstream.
#[derive(Debug)]
pub struct RoleAuthorizer {
    policy: Arc<PolicyStore>,
    upstream: Arc<dyn Authorizer>,
    /// When upstream last refused a review, because the gateway may not create any.
    refused_at: Mutex<Option<Instant>>,
}

impl RoleAuthorizer {
    /// Decides from `policy`, and by `upstream` what no role allows.
    #[must_use]
    pub fn new(policy: Arc<PolicyStore>, upstream: Arc<dyn Authorizer>) -> Self {
        Self {
            policy,
            upstream,
            refused_at: Mutex::default(),
        }
    }

    async fn evaluate(
        &self,
        question: &AccessQuestion,
        purpose: ReviewPurpose,
    ) -> Result<AccessVerdict, ReviewError> {
        let by_roles = self.policy.decide(question, purpose).await?;
        if by_roles.is_allowed || self.may_not_ask() {
            return Ok(by_roles);
        }
        match (self.upstream.decide(question, purpose).await, purpose) {
            (Err(ReviewError::Forbidden { .. }), _) => {
                *self.refused_at.lock() = Some(Instant::now());
                Ok(by_roles)
            }
            // The request is forwarded, and upstream decides then.
            (Err(_), ReviewPurpose::Authorization) => Ok(by_roles),
            (outcome, _) => outcome,
        }
    }

    fn may_not_ask(&self) -> bool {
        let refused_at = *self.refused_at.lock();
        refused_at.is_some_and(|refused_at| refused_at.elapsed() < REFUSED_TTL)
    }
}

impl Authorizer for RoleAuthorizer {
    fn decide<'a>(
        &'a self,
        question: &'a AccessQuestion,
        purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = Result<AccessVerdict, ReviewError>> + Send + 'a>> {
        Box::pin(self.evaluate(question, purpose))
    }
}

/// How long the gateway asks nothing after upstream has refused a review.
const REFUSED_TTL: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::super::decisions::tests::{Script, allowed, denied, down, pods, question};
    use super::super::policy::FollowedPolicy;
    use super::*;

    fn authorizer(script: &Arc<Script>) -> RoleAuthorizer {
        let policy = PolicyStore::default();
        policy.replace(Arc::new(FollowedPolicy::default()));
        policy.set_current(true);
        RoleAuthorizer::new(Arc::new(policy), Arc::clone(script) as _)
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_role_allows_is_upstreams_to_decide() {
        let script = Script::always(allowed());
        let authorizer = authorizer(&script);
        let kubelet = question("system:node:a", pods("a"));
        let ask = async |purpose| authorizer.decide(&kubelet, purpose).await;
        let request = ReviewPurpose::Authorization;
        assert_eq!(ask(request).await, allowed());
        script.then_always(denied());
        assert_eq!(ask(request).await, denied());
        // A request is forwarded then; a stream is checked again.
        script.then_always(down());
        assert!(!ask(request).await.unwrap().is_allowed);
        assert!(ask(ReviewPurpose::Recheck).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_may_not_ask_does_not_ask_each_time() {
        let message = String::new();
        let script = Script::always(Err(ReviewError::Forbidden { message }));
        let authorizer = authorizer(&script);
        let kubelet = question("system:node:a", pods("a"));
        for _ in 0..100 {
            let verdict = authorizer.decide(&kubelet, ReviewPurpose::Authorization);
            assert!(!verdict.await.unwrap().is_allowed);
        }
        assert_eq!(script.asked_count(), 1);
        tokio::time::advance(REFUSED_TTL).await;
        script.then_always(allowed());
        let verdict = authorizer.decide(&kubelet, ReviewPurpose::Authorization);
        assert!(verdict.await.unwrap().is_allowed);
    }
}
