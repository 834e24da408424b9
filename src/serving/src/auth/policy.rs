//! An authorizer that evaluates the roles and bindings that the gateway watches. It decides only while the watches have delivered all
//! of them and are current.

use std::pin::Pin;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;

use super::access_review::AccessVerdict;
use super::decisions::Authorizer;
use super::question::AccessQuestion;
use super::rbac::{RbacDecision, RbacPolicy};
use super::upstream::{ReviewError, ReviewPurpose};
use super::user::MASTERS;

/// The current roles and bindings, and whether they may be used for decisions.
#[derive(Debug)]
pub struct PolicyStore {
    policy: RwLock<RbacPolicy>,
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
    /// Changes a role or a binding.
    pub fn update(&self, change: impl FnOnce(&mut RbacPolicy)) {
        // Each change puts or removes one whole role or binding, so a panic cannot leave a partial one.
        change(&mut self.policy.write());
    }

    /// Forgets all roles and bindings: they are about to be listed anew, and those deleted meanwhile are in no list.
    pub fn restart(&self) {
        self.set_current(false);
        self.update(|policy| *policy = RbacPolicy::default());
    }

    /// Sets whether all roles and bindings are present and their watches are in contact with upstream. Access is decided only while
    /// they are.
    pub fn set_current(&self, is_current: bool) {
        if self.is_current.send_replace(is_current) == is_current {
            return;
        }
        if is_current {
            tracing::info!("roles and bindings are current: access is decided from them");
        } else {
            tracing::warn!(
                "no contact with upstream: access is not decided until roles and bindings are current again"
            );
        }
    }

    async fn evaluate(&self, question: &AccessQuestion) -> Result<AccessVerdict, ReviewError> {
        let mut is_current = self.is_current.subscribe();
        let current = is_current.wait_for(|is_current| *is_current);
        match tokio::time::timeout(CURRENT_WAIT, current).await {
            Ok(Ok(_)) => {}
            // They did not become current in time, or the sender is gone.
            Ok(Err(_)) | Err(_) => {
                return Err(ReviewError::Unavailable {
                    reason: "roles and bindings are not current".to_owned(),
                });
            }
        }
        let (user, access) = (&question.key.user, &question.key.access);
        if user.is_in(MASTERS) {
            return Ok(AccessVerdict {
                is_allowed: true,
                reason: String::new(),
            });
        }
        let policy = self.policy.read();
        let (is_allowed, reason) = match policy.decide(user, access) {
            RbacDecision::Allowed(reason) => (true, reason),
            RbacDecision::NotAllowed(reason) => (false, reason),
        };
        Ok(AccessVerdict { is_allowed, reason })
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
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
    use serde_json::json;

    use super::super::decisions::tests::{pods, question};
    use super::super::user::User;
    use super::*;

    async fn decide(store: &PolicyStore, question: &AccessQuestion) -> Result<bool, ReviewError> {
        let verdict = store.decide(question, ReviewPurpose::Authorization).await;
        verdict.map(|verdict| verdict.is_allowed)
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_decided_unless_all_roles_are_known() {
        let store = PolicyStore::default();
        let jane = question("jane", pods("a"));
        let before = decide(&store, &jane).await;
        assert!(matches!(before, Err(ReviewError::Unavailable { .. })));
        store.set_current(true);
        assert_eq!(decide(&store, &jane).await, Ok(false));
        store.set_current(false);
        let after = decide(&store, &jane).await;
        assert!(matches!(after, Err(ReviewError::Unavailable { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn roles_and_bindings_count_as_long_as_they_are_there() {
        let store = PolicyStore::default();
        store.set_current(true);
        let jane = question("jane", pods("a"));
        let role = json!({
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        });
        let binding = json!({
            "metadata": {"name": "readers"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        });
        let role: ClusterRole = serde_json::from_value(role).unwrap();
        let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
        store.update(|policy| policy.put_cluster_role(role));
        assert_eq!(decide(&store, &jane).await, Ok(false));
        store.update(|policy| policy.put_cluster_role_binding(binding.clone()));
        assert_eq!(decide(&store, &jane).await, Ok(true));
        store.update(|policy| policy.remove_binding("", "readers"));
        assert_eq!(decide(&store, &jane).await, Ok(false));
        store.update(|policy| policy.put_cluster_role_binding(binding));
        // What follows the roles begins again, and the binding is not listed any more.
        store.restart();
        let meanwhile = decide(&store, &jane).await;
        assert!(matches!(meanwhile, Err(ReviewError::Unavailable { .. })));
        store.set_current(true);
        assert_eq!(decide(&store, &jane).await, Ok(false));
    }

    #[tokio::test(start_paused = true)]
    async fn masters_may_do_everything() {
        let store = PolicyStore::default();
        store.set_current(true);
        let mut master = question("jane", pods("a"));
        master.key.user = Arc::new(User {
            groups: vec![MASTERS.to_owned()],
            ..(*master.key.user).clone()
        });
        assert_eq!(decide(&store, &master).await, Ok(true));
    }
}
