//! The API groups of Kubernetes itself.

/// The groups that are part of every kube-apiserver, in any of its versions, with the newest stable version of each; `None` if it never had
/// one. Other groups below `k8s.io` are custom resources or aggregated.
const BUILT_IN: [(&str, Option<&str>); 24] = [
    ("", Some("v1")),
    ("admissionregistration.k8s.io", Some("v1")),
    ("apiextensions.k8s.io", Some("v1")),
    ("apiregistration.k8s.io", Some("v1")),
    ("apps", Some("v1")),
    ("authentication.k8s.io", Some("v1")),
    ("authorization.k8s.io", Some("v1")),
    ("autoscaling", Some("v2")),
    ("batch", Some("v1")),
    ("certificates.k8s.io", Some("v1")),
    ("coordination.k8s.io", Some("v1")),
    ("discovery.k8s.io", Some("v1")),
    ("events.k8s.io", Some("v1")),
    ("extensions", None),
    ("flowcontrol.apiserver.k8s.io", Some("v1")),
    ("internal.apiserver.k8s.io", None),
    ("networking.k8s.io", Some("v1")),
    ("node.k8s.io", Some("v1")),
    ("policy", Some("v1")),
    ("rbac.authorization.k8s.io", Some("v1")),
    ("resource.k8s.io", Some("v1")),
    ("scheduling.k8s.io", Some("v1")),
    ("storage.k8s.io", Some("v1")),
    ("storagemigration.k8s.io", None),
];

fn built_in(group: &str) -> Option<Option<&'static str>> {
    BUILT_IN
        .iter()
        .find(|(name, _)| *name == group)
        .map(|(_, stable)| *stable)
}

/// Whether the group is part of every kube-apiserver.
pub fn is_built_in(group: &str) -> bool {
    built_in(group).is_some()
}

/// The groups that have a stable version and a name.
pub fn built_in_groups() -> impl Iterator<Item = &'static str> {
    let stable = BUILT_IN
        .iter()
        .filter(|(name, stable)| stable.is_some() && !name.is_empty());
    stable.map(|(name, _)| *name)
}

/// The newest stable version of a group of Kubernetes itself.
pub fn stable_version(group: &str) -> Option<&'static str> {
    built_in(group).flatten()
}
