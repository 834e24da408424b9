//! What authentication and the node authorizer know of the cluster's objects: which pods and service accounts exist, and what the pods of
//! each node use.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;

use super::user::User;
use crate::apiserver::kinds::ObjectKey;
use crate::apiserver::object::{Event, EventType};
use crate::apiserver::store::Store;

/// The extra field with the uid of the pod that a token is bound to.
pub(super) const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// Pods and service accounts, as far as authorization needs them.
#[derive(Debug, Default)]
pub(super) struct ClusterObjects {
    /// The uids of pods and service accounts.
    uids: HashSet<String>,
    /// What each pod uses, by node.
    nodes: HashMap<String, HashMap<ObjectKey, PodReferences>>,
}

/// The names of what a pod mounts, in its namespace.
#[derive(Debug, Default)]
struct PodReferences {
    config_maps: HashSet<String>,
    secrets: HashSet<String>,
}

/// Keeps the objects as the store's are.
pub(super) fn follow(store: &Store, objects: Arc<RwLock<ClusterObjects>>) {
    let catalogue = Arc::clone(store.catalogue());
    store.observe(move |event| {
        let kind = catalogue.kind(event.kind_index);
        if kind.group.is_empty() && matches!(kind.plural.as_str(), "pods" | "serviceaccounts") {
            objects.write().apply(event);
        }
    });
}

impl ClusterObjects {
    fn apply(&mut self, event: &Event) {
        let object: Value = serde_json::from_slice(&event.object.json()).unwrap_or_default();
        let uid = text(&object["metadata"]["uid"]);
        let node = text(&object["spec"]["nodeName"]);
        let key = event.object.key.clone();
        if event.event_type == EventType::Deleted {
            self.uids.remove(uid);
            if let Some(pods) = self.nodes.get_mut(node) {
                pods.remove(&key);
            }
            return;
        }
        self.uids.insert(uid.to_owned());
        if !node.is_empty() {
            let pods = self.nodes.entry(node.to_owned()).or_default();
            pods.insert(key, PodReferences::of(&object["spec"]));
        }
    }

    /// Whether the objects exist that a token's user is bound to. Other users are bound to none.
    pub(super) fn has_bound(&self, user: &User) -> bool {
        let Some(pods) = user.extra.get(POD_UID) else {
            return true;
        };
        let mut uids = pods.iter().chain([&user.uid]);
        uids.all(|uid| uid.is_empty() || self.uids.contains(uid))
    }

    /// Whether a pod of the node uses a ConfigMap or Secret.
    pub(super) fn is_used(&self, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let pods = self.nodes.get(node).into_iter().flatten();
        let mut pods = pods.filter(|(pod, _)| pod.namespace() == namespace);
        pods.any(|(_, references)| match resource {
            "configmaps" => references.config_maps.contains(name),
            "secrets" => references.secrets.contains(name),
            _ => false,
        })
    }
}

impl PodReferences {
    /// Of its volumes; those of containers' environments are left out.
    fn of(spec: &Value) -> Self {
        let mut found = Self::default();
        for volume in elements(&spec["volumes"]) {
            found.add(
                &volume["configMap"]["name"],
                &volume["secret"]["secretName"],
            );
            for source in elements(&volume["projected"]["sources"]) {
                found.add(&source["configMap"]["name"], &source["secret"]["name"]);
            }
        }
        found
    }

    fn add(&mut self, config_map: &Value, secret: &Value) {
        self.config_maps
            .extend(config_map.as_str().map(str::to_owned));
        self.secrets.extend(secret.as_str().map(str::to_owned));
    }
}

fn elements(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
