//! Keeps the RBAC policy up to date with the store's roles and bindings. Changes arrive under the store's lock, so that a write
//! is in force before it is answered.

use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::de::DeserializeOwned;

use crate::apiserver::kinds::Catalogue;
use crate::apiserver::storage::StoredChange;
use crate::apiserver::store::Publisher;
use crate::auth::rbac::RbacPolicy;
use crate::resource::{EventKind, ResourceVersion};

/// The API group of roles and bindings.
pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

/// A publisher that applies changes of roles and bindings to a policy.
#[derive(Debug)]
pub(super) struct Roles {
    policy: Arc<RwLock<RbacPolicy>>,
    /// The kinds by their index in the catalogue.
    kinds: Vec<(usize, RoleKind)>,
}

/// The kinds that a policy is made of.
#[derive(Clone, Copy, Debug)]
enum RoleKind {
    ClusterRole,
    ClusterRoleBinding,
    Role,
    RoleBinding,
}

impl Roles {
    pub(super) fn new(catalogue: &Catalogue, policy: Arc<RwLock<RbacPolicy>>) -> Self {
        let kinds = [
            ("clusterroles", RoleKind::ClusterRole),
            ("clusterrolebindings", RoleKind::ClusterRoleBinding),
            ("roles", RoleKind::Role),
            ("rolebindings", RoleKind::RoleBinding),
        ];
        let index = |plural| catalogue.index_of(GROUP, "v1", plural);
        let kinds = kinds.into_iter();
        Self {
            policy,
            kinds: kinds
                .filter_map(|(plural, kind)| Some((index(plural)?, kind)))
                .collect(),
        }
    }
}

impl Publisher for Roles {
    fn publish(&mut self, changes: &[StoredChange]) {
        for change in changes {
            let mut kinds = self.kinds.iter();
            let Some((_, kind)) = kinds.find(|(index, _)| *index == change.kind_index) else {
                continue;
            };
            let mut policy = self.policy.write().unwrap_or_else(PoisonError::into_inner);
            // A role or binding that cannot be parsed grants nothing.
            if change.event == EventKind::Deleted || !put(&mut policy, *kind, &change.object) {
                remove(&mut policy, *kind, change);
            }
        }
    }

    fn progress(&mut self, _: usize, _: ResourceVersion) {}

    fn compact(&mut self, _: usize, _: ResourceVersion) {}
}

/// Adds or replaces an object in the policy. Returns false if it cannot be parsed.
fn put(policy: &mut RbacPolicy, kind: RoleKind, object: &[u8]) -> bool {
    match kind {
        RoleKind::ClusterRole => {
            parse::<ClusterRole>(object).map(|role| policy.put_cluster_role(role))
        }
        RoleKind::ClusterRoleBinding => parse::<ClusterRoleBinding>(object)
            .map(|binding| policy.put_cluster_role_binding(binding)),
        RoleKind::Role => parse::<Role>(object).map(|role| policy.put_role(role)),
        RoleKind::RoleBinding => {
            parse::<RoleBinding>(object).map(|binding| policy.put_role_binding(binding))
        }
    }
    .is_some()
}

fn parse<T: DeserializeOwned>(object: &[u8]) -> Option<T> {
    let parsed = serde_json::from_slice(object);
    parsed
        .inspect_err(
            |fault| tracing::warn!(%fault, "cannot parse a role or binding; it grants nothing"),
        )
        .ok()
}

fn remove(policy: &mut RbacPolicy, kind: RoleKind, change: &StoredChange) {
    let (namespace, name) = (change.key.namespace(), change.key.name());
    match kind {
        RoleKind::ClusterRole | RoleKind::Role => policy.remove_role(namespace, name),
        RoleKind::ClusterRoleBinding | RoleKind::RoleBinding => {
            policy.remove_binding(namespace, name);
        }
    }
}
