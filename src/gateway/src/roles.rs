//! Follows roles and bindings upstream: the guard learns of changes at once, and in RBAC mode has all objects to decide from.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::Resource;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::de::DeserializeOwned;
use strum::VariantArray;
use tokio::time::Instant;

use crate::auth::changes::RoleScope;
use crate::auth::guard::Guard;
use crate::auth::policy::PolicyStore;
use crate::auth::rbac::RbacPolicy;
use crate::informer::{
    Cached, FailureKind, InformerCounts, InformerOptions, ListWatch, Metadata, Notification,
    OnFailure, Registration, SharedInformer, WatchFailure,
};
use crate::resource::Gvr;
use crate::upstream::client::Client;

/// The informers of roles and bindings for a guard.
pub(super) struct RoleFeed {
    client: Arc<Client>,
    guard: Guard,
    /// Set in RBAC mode, where the guard decides from the objects. Otherwise only metadata is read, to notice changes.
    policy: Option<Arc<PolicyStore>>,
}

/// Shuts an informer down when it is dropped.
struct InformerGuard<T: Send + Sync + 'static>(SharedInformer<T>);

impl RoleFeed {
    pub(super) fn new(client: Client, guard: Guard, policy: Option<Arc<PolicyStore>>) -> Self {
        Self {
            client: Arc::new(client),
            guard,
            policy,
        }
    }

    pub(super) async fn run(&self) {
        match &self.policy {
            None => self.follow_metadata().await,
            Some(policy) => self.follow_objects(policy).await,
        }
    }

    async fn follow_metadata(&self) {
        let mut followed = Vec::new();
        for gvr in [
            gvr::<ClusterRole>(),
            gvr::<ClusterRoleBinding>(),
            gvr::<Role>(),
            gvr::<RoleBinding>(),
        ] {
            let guard = self.guard.clone();
            let list_watch = ListWatch::metadata(&gvr);
            let following = InformerGuard::new(&self.client, list_watch, log_once(&gvr));
            let registration = following
                .0
                .add_handler(move |change: &Notification<Metadata>| {
                    if !is_initial(change) {
                        guard.roles_changed(scope(object(change)));
                    }
                });
            following.0.start();
            followed.push((following, registration));
        }
        std::future::pending().await
    }

    async fn follow_objects(&self, policy: &Arc<PolicyStore>) {
        // A task before this one may have ended.
        policy.restart();
        let cluster_roles = self.follow(
            policy,
            |policy, role: &ClusterRole| policy.put_cluster_role(role.clone()),
            |policy, role| policy.remove_role("", role.key().name()),
        );
        let roles = self.follow(
            policy,
            |policy, role: &Role| policy.put_role(role.clone()),
            |policy, role| policy.remove_role(role.key().namespace(), role.key().name()),
        );
        let cluster_bindings = self.follow(
            policy,
            |policy, binding: &ClusterRoleBinding| policy.put_cluster_role_binding(binding.clone()),
            |policy, binding| policy.remove_binding("", binding.key().name()),
        );
        let bindings = self.follow(
            policy,
            |policy, binding: &RoleBinding| policy.put_role_binding(binding.clone()),
            |policy, binding| {
                policy.remove_binding(binding.key().namespace(), binding.key().name())
            },
        );
        // A handler that was removed has not received all objects; then the policy stays incomplete and decides nothing.
        let are_complete = cluster_roles.1.synced().await.is_ok()
            && roles.1.synced().await.is_ok()
            && cluster_bindings.1.synced().await.is_ok()
            && bindings.1.synced().await.is_ok();
        if !are_complete {
            std::future::pending().await
        }
        let stale_after = self.guard.settings().reauthorize_grace.max(STALE_MIN);
        let mut contact = UpstreamContact::new();
        loop {
            let counts = [
                cluster_roles.0.0.counts(),
                roles.0.0.counts(),
                cluster_bindings.0.0.counts(),
                bindings.0.0.counts(),
            ];
            contact.update(&counts, Instant::now());
            policy.set_current(contact.is_current(stale_after, Instant::now()));
            tokio::time::sleep(CONTACT_PERIOD).await;
        }
    }

    /// Keeps all objects of a kind in the policy.
    fn follow<T>(
        &self,
        policy: &Arc<PolicyStore>,
        put: fn(&mut RbacPolicy, &T),
        remove: fn(&mut RbacPolicy, &Cached<T>),
    ) -> (InformerGuard<T>, Registration<T>)
    where
        T: Resource + DeserializeOwned + Clone + Send + Sync + 'static,
    {
        let gvr = gvr::<T>();
        let list_watch = ListWatch::of_kind().without_managed_fields().consistent();
        let following = InformerGuard::new(&self.client, list_watch, log_once(&gvr));
        let (policy, guard) = (Arc::clone(policy), self.guard.clone());
        let registration = following.0.add_handler(move |change: &Notification<T>| {
            let object = object(change);
            policy.update(|policy| match change {
                Notification::Added { object, .. } | Notification::Updated { new: object, .. } => {
                    put(policy, object);
                }
                Notification::Deleted { object, .. } => remove(policy, object),
            });
            guard.roles_changed(scope(object));
        });
        following.0.start();
        (following, registration)
    }
}

impl<T: Send + Sync + 'static> InformerGuard<T> {
    fn new(client: &Arc<Client>, list_watch: ListWatch<T>, on_failure: OnFailure) -> Self {
        let options = InformerOptions {
            on_failure: Some(on_failure),
            ..InformerOptions::default()
        };
        Self(SharedInformer::with_options(
            Arc::clone(client),
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

/// When upstream last sent data for each of the four kinds. Its watches carry a bookmark about every minute.
struct UpstreamContact([ContactRecord; 4]);

#[derive(Clone, Copy)]
struct ContactRecord {
    bytes: u64,
    failures: u64,
    at: Instant,
}

impl UpstreamContact {
    fn new() -> Self {
        let now = ContactRecord {
            bytes: 0,
            failures: 0,
            at: Instant::now(),
        };
        Self([now; 4])
    }

    fn update(&mut self, counts: &[InformerCounts; 4], now: Instant) {
        for (last, counts) in self.0.iter_mut().zip(counts) {
            let failures = FailureKind::VARIANTS
                .iter()
                .map(|kind| counts.failures(*kind))
                .sum();
            // The bytes of an error response say nothing about roles.
            if counts.bytes != last.bytes && failures == last.failures {
                last.at = now;
            }
            (last.bytes, last.failures) = (counts.bytes, failures);
        }
    }

    fn is_current(&self, stale_after: Duration, now: Instant) -> bool {
        self.0.iter().all(|last| now - last.at < stale_after)
    }
}

fn gvr<T: Resource>() -> Gvr {
    Gvr::new(T::GROUP, T::VERSION, T::URL_PATH_SEGMENT)
}

fn object<T>(change: &Notification<T>) -> &Cached<T> {
    match change {
        Notification::Added { object, .. }
        | Notification::Updated { new: object, .. }
        | Notification::Deleted { object, .. } => object,
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

fn scope<T>(object: &Cached<T>) -> RoleScope {
    match object.key().namespace() {
        "" => RoleScope::Cluster,
        namespace => RoleScope::Namespace(namespace.to_owned()),
    }
}

/// How often contact with upstream is checked.
const CONTACT_PERIOD: Duration = Duration::from_secs(5);

/// Three of the API server's bookmark intervals of a minute.
const STALE_MIN: Duration = Duration::from_secs(180);

/// Logs once that the gateway may not watch a resource; changes are then noticed at the re-authorization interval. Other failures pass.
fn log_once(gvr: &Gvr) -> OnFailure {
    let (resource, is_logged) = (gvr.to_string(), OnceLock::new());
    Arc::new(move |failure: &WatchFailure| {
        let is_forbidden =
            matches!(failure, WatchFailure::Refused { status, .. } if status.code == 403);
        if is_forbidden && is_logged.set(()).is_ok() {
            tracing::warn!(
                %resource,
                "the gateway may not watch this resource: changes of roles are noticed only when permissions are checked again"
            );
        } else {
            tracing::debug!(%resource, %failure, "reading failed");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_with_bytes(bytes: u64) -> InformerCounts {
        let mut counts = InformerCounts::default();
        counts.bytes += bytes;
        counts
    }

    #[tokio::test(start_paused = true)]
    async fn roles_are_current_as_long_as_all_kinds_are_heard_of() {
        let mut contact = UpstreamContact::new();
        let counts = |bytes, last| {
            [
                counts_with_bytes(bytes),
                counts_with_bytes(bytes),
                counts_with_bytes(bytes),
                counts_with_bytes(last),
            ]
        };
        for minute in 1..10 {
            tokio::time::advance(Duration::from_secs(60)).await;
            contact.update(&counts(minute, minute), Instant::now());
            assert!(contact.is_current(STALE_MIN, Instant::now()));
        }
        // One kind sends nothing any more.
        for minute in 10..13 {
            assert!(contact.is_current(STALE_MIN, Instant::now()), "{minute}");
            tokio::time::advance(Duration::from_secs(60)).await;
            contact.update(&counts(minute, 9), Instant::now());
        }
        assert!(!contact.is_current(STALE_MIN, Instant::now()));
        contact.update(&counts(13, 13), Instant::now());
        assert!(contact.is_current(STALE_MIN, Instant::now()));
    }
}
