//! The node authorizer: what kubelets may do by static rules, and which single objects they may read because their pods use them.

use super::cluster::ClusterObjects;
use super::user::User;
use super::{Access, ResourceAccess};
use crate::apiserver::selector::pinned_value;

const NODES: &str = "system:nodes";
const USER_PREFIX: &str = "system:node:";

/// The node of a kubelet's user.
pub(super) fn node_of(user: &User) -> Option<&str> {
    let node = user.name.strip_prefix(USER_PREFIX)?;
    user.is_in(NODES).then_some(node)
}

/// Whether a kubelet may do something, by the rules of kube-apiserver 1.36 for the resources that kubelets watch and report to.
pub(super) fn allows(node: &str, access: &Access, objects: &ClusterObjects) -> bool {
    let Access::Resource(access) = access else {
        return false;
    };
    let ResourceAccess {
        verb,
        group,
        resource,
        subresource,
        namespace,
        name,
        field_selector,
    } = access;
    let is_read = matches!(verb.as_str(), "get" | "list" | "watch");
    let is_change = matches!(verb.as_str(), "update" | "patch");
    match (group.as_str(), resource.as_str(), subresource.as_str()) {
        ("", "services", "") | ("storage.k8s.io", "csidrivers", "") => is_read,
        ("node.k8s.io", "runtimeclasses", "") => is_read,
        ("", "nodes", "") => name == node && (is_read || is_change),
        ("", "nodes", "status") => name == node && is_change,
        ("", "pods", "") => {
            matches!(verb.as_str(), "list" | "watch")
                && pinned_value(field_selector, "spec.nodeName").as_deref() == Some(node)
        }
        ("", "pods", "status") => is_change,
        ("", "configmaps" | "secrets", "") => {
            is_read && objects.is_used(node, resource, namespace, name)
        }
        ("coordination.k8s.io", "leases", "") => {
            namespace == "kube-node-lease" && (name == node || verb == "create")
        }
        _ => false,
    }
}
