//! Which of upstream's answers to kubelets rest on nothing but the fixed rules of its node authorizer. Which access these rules allow is
//! left to upstream.

use super::access::Access;
use super::user::User;

const NODE_USER_PREFIX: &str = "system:node:";
const NODES: &str = "system:nodes";

/// Group and plural name of resources that the fixed rules let nodes list and watch, or did so in some version. Pods and slices may
/// need a field selector, which is part of the question. Whatever the authorizer looks up in its graph of nodes and pods is missing: secrets,
/// config maps, volumes and their claims and attachments, service accounts, resource claims.
const STATIC_COLLECTIONS: &[(&str, &str)] = &[
    ("", "nodes"),
    ("", "pods"),
    ("", "services"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("certificates.k8s.io", "clustertrustbundles"),
    ("node.k8s.io", "runtimeclasses"),
    ("resource.k8s.io", "resourceslices"),
    ("storage.k8s.io", "csidrivers"),
];

/// Whether upstream's node authorizer answers a question of this user without its graph, by rules that change only with upstream's version
/// and feature gates: the reads of some resources as a whole, and of the user's own Node. False for everybody but nodes.
#[must_use]
pub fn is_static_node_rule(user: &User, access: &Access) -> bool {
    let (Some(node), Access::Resource(access)) = (node_name(user), access) else {
        return false;
    };
    let is_read = matches!(access.verb.as_str(), "get" | "list" | "watch");
    let kind = (access.group.as_str(), access.resource.as_str());
    let is_static = match access.name.as_str() {
        "" => STATIC_COLLECTIONS.contains(&kind),
        name => kind == ("", "nodes") && name == node,
    };
    is_read && access.subresource.is_empty() && is_static
}

/// The name of the user's node, as the API server reads it from user name and groups.
fn node_name(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(NODE_USER_PREFIX)?;
    (!name.is_empty() && user.is_in(NODES)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::access::ResourceAccess;

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..User::default()
        }
    }

    /// Parses `VERB [GROUP/]RESOURCE[:NAME]`.
    fn access(text: &str) -> ResourceAccess {
        let (verb, object) = text.split_once(' ').unwrap();
        let (object, name) = object.split_once(':').unwrap_or((object, ""));
        let (group, resource) = object.split_once('/').unwrap_or(("", object));
        ResourceAccess {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..ResourceAccess::default()
        }
    }

    #[test]
    fn answers_without_the_graph_are_static() {
        let node = user("system:node:n1", &["system:nodes", "system:authenticated"]);
        let rows = [
            ("list services", true),
            ("watch services", true),
            ("watch storage.k8s.io/csidrivers", true),
            ("list node.k8s.io/runtimeclasses", true),
            ("watch certificates.k8s.io/clustertrustbundles", true),
            ("list pods", true),
            ("watch nodes", true),
            ("get nodes:n1", true),
            ("watch nodes:n1", true),
            ("watch nodes:n2", false),
            ("get nodes:n", false),
            ("patch nodes:n1", false),
            ("delete pods", false),
            ("create services", false),
            ("deletecollection resource.k8s.io/resourceslices", false),
            ("* services", false),
            // The graph decides for single objects.
            ("get pods:p", false),
            ("watch pods:p", false),
            ("watch secrets:s", false),
            ("watch configmaps:n1", false),
            // The fixed rules say nothing about these, or the graph decides.
            ("watch secrets", false),
            ("list configmaps", false),
            ("list persistentvolumes", false),
            ("list persistentvolumeclaims", false),
            ("list serviceaccounts", false),
            ("list resource.k8s.io/resourceclaims", false),
            ("list storage.k8s.io/volumeattachments", false),
            ("list apps/services", false),
            ("list csidrivers", false),
            ("list apps/deployments", false),
        ];
        for (text, expected) in rows {
            let access = Access::Resource(access(text));
            assert_eq!(is_static_node_rule(&node, &access), expected, "{text}");
        }
        let status = ResourceAccess {
            subresource: "status".to_owned(),
            ..access("get nodes:n1")
        };
        assert!(!is_static_node_rule(&node, &Access::Resource(status)));
        let path = Access::Path {
            verb: "get".to_owned(),
            path: "/version".to_owned(),
        };
        assert!(!is_static_node_rule(&node, &path));
    }

    #[test]
    fn only_nodes_have_the_rules_of_nodes() {
        let rows = [
            (user("system:node:n1", &["system:nodes"]), true),
            (user("system:node:n1", &["system:masters"]), false),
            (user("system:node:n1", &[]), false),
            (user("system:node:", &["system:nodes"]), false),
            (user("n1", &["system:nodes"]), false),
            (user("system:serviceaccount:a:b", &["system:nodes"]), false),
        ];
        let services = Access::Resource(access("list services"));
        for (user, expected) in rows {
            assert_eq!(is_static_node_rule(&user, &services), expected, "{user:?}");
        }
    }
}
