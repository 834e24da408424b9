//! What is decided and explained, and when.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::json;

use super::super::decisions::tests::{pods, question};
use super::*;

async fn decide(store: &PolicyStore, question: &AccessQuestion) -> Result<bool, ReviewError> {
    let verdict = store.decide(question, ReviewPurpose::Authorization).await;
    verdict.map(|verdict| verdict.is_allowed)
}

fn explains(store: &PolicyStore, question: &AccessQuestion) -> bool {
    store.explains(&question.key.user, &question.key.access)
}

fn reader() -> ClusterRole {
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
    });
    serde_json::from_value(role).unwrap()
}

fn readers() -> ClusterRoleBinding {
    let binding = json!({
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    serde_json::from_value(binding).unwrap()
}

/// A policy that lets jane list pods.
fn policy() -> Arc<FollowedPolicy> {
    let policy = FollowedPolicy::default();
    policy.update(|policy| policy.put_cluster_role(reader()));
    policy.update(|policy| policy.put_cluster_role_binding(readers()));
    Arc::new(policy)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_or_explained_unless_all_roles_are_known() {
    let store = PolicyStore::default();
    let jane = question("jane", pods("a"));
    let unavailable = async |store| {
        let decision = decide(store, &jane).await;
        matches!(decision, Err(ReviewError::Unavailable { .. })) && !explains(store, &jane)
    };
    assert!(unavailable(&store).await);
    assert!(store.set_current(true));
    assert!(unavailable(&store).await, "nothing was listed");
    assert!(store.set_current(false));
    store.replace(policy());
    assert!(unavailable(&store).await);
    assert!(store.set_current(true));
    assert!(!store.set_current(true));
    assert!(store.is_current());
    assert_eq!(decide(&store, &jane).await, Ok(true));
    assert!(explains(&store, &jane));
    store.set_current(false);
    assert!(unavailable(&store).await);
}

#[tokio::test(start_paused = true)]
async fn roles_and_bindings_count_as_long_as_they_are_there() {
    let (store, policy) = (PolicyStore::default(), policy());
    assert!(!store.replace(Arc::clone(&policy)));
    store.set_current(true);
    let jane = question("jane", pods("a"));
    let joe = question("joe", pods("a"));
    assert_eq!(decide(&store, &jane).await, Ok(true));
    assert_eq!(decide(&store, &joe).await, Ok(false));
    assert!(explains(&store, &jane) && !explains(&store, &joe));
    assert!(policy.update(|policy| policy.remove_binding("", "readers")));
    assert_eq!(decide(&store, &jane).await, Ok(false));
    assert!(!explains(&store, &jane));
}

#[tokio::test(start_paused = true)]
async fn a_late_change_by_an_earlier_run_of_the_feed_counts_for_nothing() {
    let (store, earlier, later) = (PolicyStore::default(), policy(), policy());
    store.replace(Arc::clone(&earlier));
    assert!(!store.replace(later), "the same roles");
    store.set_current(true);
    earlier.update(|policy| policy.remove_binding("", "readers"));
    assert!(explains(&store, &question("jane", pods("a"))));
    assert!(store.replace(earlier), "a binding is gone");
    assert!(!explains(&store, &question("jane", pods("a"))));
}

#[tokio::test(start_paused = true)]
async fn masters_may_do_everything() {
    let store = PolicyStore::default();
    let mut master = question("jane", pods("a"));
    master.key.user = Arc::new(User {
        groups: vec![MASTERS.to_owned()],
        ..(*master.key.user).clone()
    });
    store.replace(Arc::default());
    assert!(!explains(&store, &master));
    store.set_current(true);
    assert_eq!(decide(&store, &master).await, Ok(true));
    assert!(explains(&store, &master));
}
