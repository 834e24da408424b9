//! Follows roles and bindings upstream: the guard learns at once of changes that matter, and has all of them to decide from or to explain
//! upstream's decisions.

mod contact;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::Resource;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use self::contact::UpstreamContact;
use super::refusal_log::log_refusal_once;
use crate::auth::changes::RoleScope;
use crate::auth::guard::{AuthorizerMode, Guard, GuardSettings};
use crate::auth::policy::{FollowedPolicy, PolicyStore};
use crate::auth::rbac::RbacPolicy;
use crate::informer::{
    Cached, InformerOptions, ListWatch, Notification, OnFailure, Registration, SharedInformer,
};
use crate::resource::Gvr;
use crate::upstream::client::Client;
use crate::upstream::driver::Fetch;

/// The informers of roles and bindings for a guard.
pub(super) struct RoleFeed<F = Client> {
    fetch: Arc<F>,
    mode: AuthorizerMode,
    /// How long upstream may send nothing of a kind until roles and bindings are not current any more.
    stale_after: Duration,
    policy: Arc<PolicyStore>,
    report: ChangeReport,
}

/// Called with the scope of each change of what roles allow.
type ChangeReport = Arc<dyn Fn(RoleScope) + Send + Sync>;

/// Shuts an informer down when it is dropped.
struct InformerGuard<T: Send + Sync + 'static>(SharedInformer<T>);

/// The roles are not current when nobody follows them any more: the task panicked, or the gateway ends.
struct StaleOnDrop<'a>(&'a PolicyStore);

impl RoleFeed {
    pub(super) fn new(client: Client, guard: Guard, policy: Arc<PolicyStore>) -> Self {
        Self {
            fetch: Arc::new(client),
            mode: guard.settings().mode,
            stale_after: stale_after(guard.settings()),
            policy,
            report: Arc::new(move |scope| guard.roles_changed(scope)),
        }
    }
}

impl<F: Fetch> RoleFeed<F> {
    /// Follows all of them until the task is dropped. Where the gateway may not watch one kind, they never become current.
    pub(super) async fn run(&self) {
        let _stale_at_end = StaleOnDrop(&self.policy);
        let policy = Arc::new(FollowedPolicy::default());
        let cluster_roles = self.follow(
            &policy,
            |policy, role: &ClusterRole| policy.put_cluster_role(role.clone()),
            |policy, role| policy.remove_role("", role.key().name()),
        );
        let roles = self.follow(
            &policy,
            |policy, role: &Role| policy.put_role(role.clone()),
            |policy, role| policy.remove_role(role.key().namespace(), role.key().name()),
        );
        let cluster_bindings = self.follow(
            &policy,
            |policy, binding: &ClusterRoleBinding| policy.put_cluster_role_binding(binding.clone()),
            |policy, binding| policy.remove_binding("", binding.key().name()),
        );
        let bindings = self.follow(
            &policy,
            |policy, binding: &RoleBinding| policy.put_role_binding(binding.clone()),
            |policy, binding| {
                policy.remove_binding(binding.key().namespace(), binding.key().name())
            },
        );
        // A handler that was removed has not received all objects; then the policy stays incomplete and is never used.
        let are_complete = cluster_roles.1.synced().await.is_ok()
            && roles.1.synced().await.is_ok()
            && cluster_bindings.1.synced().await.is_ok()
            && bindings.1.synced().await.is_ok();
        if !are_complete {
            std::future::pending().await
        }
        // An earlier run may have ended; what changed since is in no notification.
        let has_changed = self.policy.replace(policy);
        self.set_current(true);
        (self.report)(match has_changed {
            true => RoleScope::Cluster,
            false => RoleScope::Known,
        });
        let mut contact = UpstreamContact::new(Instant::now());
        loop {
            let counts = [
                cluster_roles.0.0.counts(),
                roles.0.0.counts(),
                cluster_bindings.0.0.counts(),
                bindings.0.0.counts(),
            ];
            contact.update(&counts, Instant::now());
            self.set_current(contact.is_current(self.stale_after, Instant::now()));
            tokio::time::sleep(CONTACT_PERIOD).await;
        }
    }

    /// Keeps all objects of a kind in the policy.
    fn follow<T>(
        &self,
        policy: &Arc<FollowedPolicy>,
        put: fn(&mut RbacPolicy, &T) -> bool,
        remove: fn(&mut RbacPolicy, &Cached<T>) -> bool,
    ) -> (InformerGuard<T>, Registration<T>)
    where
        T: Resource + DeserializeOwned + Clone + Send + Sync + 'static,
    {
        let gvr = Gvr::new(T::GROUP, T::VERSION, T::URL_PATH_SEGMENT);
        let list_watch = ListWatch::of_kind().without_managed_fields().consistent();
        let following =
            InformerGuard::new(&self.fetch, list_watch, log_refusal_once(&gvr, UNWATCHED));
        let (policy, report) = (Arc::clone(policy), Arc::clone(&self.report));
        let registration = following.0.add_handler(move |change: &Notification<T>| {
            let has_changed = policy.update(|policy| match change {
                Notification::Added { object, .. } | Notification::Updated { new: object, .. } => {
                    put(policy, object)
                }
                Notification::Deleted { object, .. } => remove(policy, object),
            });
            if has_changed && !is_initial(change) {
                report(scope(change));
            }
        });
        following.0.start();
        (following, registration)
    }

    fn set_current(&self, is_current: bool) {
        if !self.policy.set_current(is_current) {
            return;
        }
        if is_current {
            // What was decided meanwhile rests on roles that were not known.
            (self.report)(RoleScope::Known);
        }
        match (is_current, self.mode) {
            (true, AuthorizerMode::Rbac) => {
                tracing::info!("roles and bindings are current: access is decided from them");
            }
            (false, AuthorizerMode::Rbac) => tracing::warn!(
                "no contact with upstream: access is not decided until roles and bindings are current again"
            ),
            (true, AuthorizerMode::SelfCheck | AuthorizerMode::Review) => tracing::info!(
                "roles and bindings are current: what they allow is checked again when they change"
            ),
            (false, AuthorizerMode::SelfCheck | AuthorizerMode::Review) => tracing::warn!(
                "no contact with upstream: permissions are checked more often until roles and bindings are current again"
            ),
        }
    }
}

impl<T: Send + Sync + 'static> InformerGuard<T> {
    fn new<F: Fetch>(fetch: &Arc<F>, list_watch: ListWatch<T>, on_failure: OnFailure) -> Self {
        let options = InformerOptions {
            on_failure: Some(on_failure),
            ..InformerOptions::default()
        };
        Self(SharedInformer::with_options(
            Arc::clone(fetch),
            list_watch,
            options,
        ))
    }
}

impl<T: Send + Sync + 'static> Drop for InformerGuard<T> {
    fn drop(&mut self) {
        let informer = self.0.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { informer.shutdown().await });
        }
    }
}

impl Drop for StaleOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set_current(false);
    }
}

const fn is_initial<T>(change: &Notification<T>) -> bool {
    match change {
        Notification::Added {
            in_initial_list, ..
        } => *in_initial_list,
        Notification::Updated { .. } | Notification::Deleted { .. } => false,
    }
}

fn scope<T>(change: &Notification<T>) -> RoleScope {
    match change.key().namespace() {
        "" => RoleScope::Cluster,
        namespace => RoleScope::Namespace(namespace.to_owned()),
    }
}

/// Where roles decide, they do so for as long as a stream continues unconfirmed.
fn stale_after(settings: &GuardSettings) -> Duration {
    match settings.mode {
        AuthorizerMode::Rbac => settings.reauthorize_grace.max(STALE_MIN),
        AuthorizerMode::SelfCheck | AuthorizerMode::Review => STALE_MIN,
    }
}

/// How often contact with upstream is checked.
const CONTACT_PERIOD: Duration = Duration::from_secs(5);

/// Three of the API server's bookmark intervals of a minute.
const STALE_MIN: Duration = Duration::from_secs(180);

/// The log line if the gateway may not watch one of the kinds.
const UNWATCHED: &str = "the gateway may not watch this resource: changes of roles are noticed only when permissions are checked again";

#[cfg(test)]
mod tests;
