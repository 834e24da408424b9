//! The documents of discovery, in both forms, and the version. The order of their fields is not kube-apiserver's.

use serde_json::{Value, json};

use super::kinds::{Catalogue, ServedKind};
use super::reviews::{self, Review};

const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The Kubernetes version that the server behaves like.
pub(super) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.0+kube-fanout",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": "linux/amd64",
    })
}

/// `/api`.
pub(super) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub(super) fn groups(catalogue: &Catalogue) -> Value {
    let groups = named_groups(catalogue).into_iter().map(group_document);
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.collect::<Vec<_>>()})
}

/// `/apis/GROUP`; `None` for a group that is not served.
pub(super) fn group(catalogue: &Catalogue, name: &str) -> Option<Value> {
    let mut groups = named_groups(catalogue).into_iter();
    let mut document = group_document(groups.find(|group| group.name == name)?);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    Some(document)
}

/// `/api/v1`, `/apis/GROUP/VERSION`; `None` for a version that is not served.
pub(super) fn resources(catalogue: &Catalogue, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in kinds_of(catalogue, group, version) {
        let mut resource = json!({
            "name": kind.plural,
            "singularName": kind.kind.to_lowercase(),
            "namespaced": kind.is_namespaced,
            "kind": kind.kind,
            "verbs": verbs(kind),
        });
        if !kind.short_name.is_empty() {
            resource["shortNames"] = json!([kind.short_name]);
        }
        resources.push(resource);
        if kind.has_status {
            resources.push(json!({
                "name": format!("{}/status", kind.plural),
                "singularName": "",
                "namespaced": kind.is_namespaced,
                "kind": kind.kind,
                "verbs": STATUS_VERBS,
            }));
        }
    }
    let group_version = match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    };
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version,
            "resources": resources,
        })
    })
}

/// The aggregated document of `/api`.
pub(super) fn aggregated_core(catalogue: &Catalogue) -> Value {
    aggregated(vec![aggregated_group(catalogue, &Group::core())])
}

/// The aggregated document of `/apis`.
pub(super) fn aggregated_groups(catalogue: &Catalogue) -> Value {
    let groups = named_groups(catalogue);
    let items = groups
        .iter()
        .map(|group| aggregated_group(catalogue, group));
    aggregated(items.collect())
}

fn aggregated(items: Vec<Value>) -> Value {
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregated_group(catalogue: &Catalogue, group: &Group<'_>) -> Value {
    let version = |version: &&str| {
        let kinds = kinds_of(catalogue, group.name, version);
        let resources: Vec<Value> = kinds.map(aggregated_resource).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    };
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    let metadata = match group.name {
        "" => json!({}),
        name => json!({"name": name}),
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(kind: &ServedKind) -> Value {
    // As in kube-apiserver, built-in kinds have no group and version here.
    let response_kind = match kind.is_custom {
        true => json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
        false => json!({"group": "", "version": "", "kind": kind.kind}),
    };
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": response_kind,
        "scope": if kind.is_namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.kind.to_lowercase(),
        "verbs": verbs(kind),
    });
    if !kind.short_name.is_empty() {
        resource["shortNames"] = json!([kind.short_name]);
    }
    if kind.has_status {
        let verbs = STATUS_VERBS;
        resource["subresources"] =
            json!([{"subresource": "status", "responseKind": response_kind, "verbs": verbs}]);
    }
    resource
}

fn verbs(kind: &ServedKind) -> &'static [&'static str] {
    match Review::of(&kind.group, &kind.version, &kind.plural) {
        Some(_) => &["create"],
        None => &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ],
    }
}

/// A group with its versions, the preferred one first.
struct Group<'a> {
    name: &'a str,
    versions: Vec<&'a str>,
}

impl Group<'_> {
    fn core() -> Self {
        let versions = vec!["v1"];
        Self { name: "", versions }
    }
}

/// Whether a group has built-in kinds, and so is known even for resources that it does not have.
pub(super) fn is_built_in(catalogue: &Catalogue, group: &str) -> bool {
    let mut kinds = catalogue.kinds().iter().chain(reviews::kinds());
    kinds.any(|kind| kind.group == group && !kind.is_custom)
}

/// All groups but the core group, sorted.
fn named_groups(catalogue: &Catalogue) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for kind in catalogue.kinds().iter().chain(reviews::kinds()) {
        match groups.iter_mut().find(|group| group.name == kind.group) {
            _ if kind.group.is_empty() => {}
            Some(group) if group.versions.contains(&&*kind.version) => {}
            Some(group) => group.versions.push(&kind.version),
            None => groups.push(Group {
                name: &kind.group,
                versions: vec![&kind.version],
            }),
        }
    }
    groups.sort_by_key(|group| group.name);
    groups
}

fn group_document(group: Group<'_>) -> Value {
    let version = |version: &&str| {
        let group_version = format!("{}/{version}", group.name);
        json!({"groupVersion": group_version, "version": version})
    };
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "preferredVersion": versions[0], "versions": versions})
}

fn kinds_of<'a>(
    catalogue: &'a Catalogue,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a ServedKind> {
    let kinds = catalogue.kinds().iter().chain(reviews::kinds());
    kinds.filter(move |kind| kind.group == group && kind.version == version)
}
