//! The discovery documents: groups, versions and resources of the catalogue. Pure; made for each request.

use bytes::Bytes;
use serde::Serialize;

use super::kinds::{Catalogue, ServedKind, StatusPart};
use super::render;
use super::review_kinds::{Review, discovered};
use crate::resource::Layout;

/// Verbs of compiled-in kinds, in kube-apiserver's order.
const TYPED_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// Verbs of custom resources, in kube-apiserver's order.
const DYNAMIC_VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
/// Verbs of reviews.
const REVIEW_VERBS: &[&str] = &["create"];
/// Verbs of a status subresource.
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

/// The response to `GET /version`: the Kubernetes version that the embedded API server behaves like.
const VERSION: &str = r#"{
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
  "platform": "linux/amd64"
}"#;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiVersions<'a> {
    kind: &'static str,
    versions: Vec<&'a str>,
    #[serde(rename = "serverAddressByClientCIDRs")]
    server_addresses: [ServerAddress<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ServerAddress<'a> {
    #[serde(rename = "clientCIDR")]
    client_cidr: &'static str,
    server_address: &'a str,
}

#[derive(Serialize)]
struct GroupList<'a> {
    kind: &'static str,
    groups: Vec<ApiGroup<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroup<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    name: &'a str,
    versions: Vec<GroupVersion<'a>>,
    preferred_version: GroupVersion<'a>,
    #[serde(
        rename = "serverAddressByClientCIDRs",
        skip_serializing_if = "Option::is_none"
    )]
    server_addresses: Option<[ServerAddress<'a>; 1]>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion<'a> {
    group_version: String,
    version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceList<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    group_version: String,
    resources: Vec<Resource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    name: String,
    singular_name: &'a str,
    namespaced: bool,
    kind: &'a str,
    verbs: &'static [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Aggregated<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: NameMeta<'a>,
    items: Vec<ApiGroupDiscovery<'a>>,
}

#[derive(Serialize)]
struct NameMeta<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct ApiGroupDiscovery<'a> {
    metadata: NameMeta<'a>,
    versions: Vec<ApiVersionDiscovery<'a>>,
}

#[derive(Serialize)]
struct ApiVersionDiscovery<'a> {
    version: &'a str,
    resources: Vec<ApiResourceDiscovery<'a>>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResourceDiscovery<'a> {
    resource: &'a str,
    response_kind: ResponseGvk<'a>,
    scope: &'static str,
    singular_resource: &'a str,
    verbs: &'static [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    subresources: Vec<Subresource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Subresource<'a> {
    subresource: &'static str,
    response_kind: ResponseGvk<'a>,
    verbs: &'static [&'static str],
}

/// Group and version are empty for compiled-in kinds, as in kube-apiserver's documents.
#[derive(Serialize)]
struct ResponseGvk<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

/// The response to `GET /version`; always indented.
#[must_use]
pub(super) fn version() -> Bytes {
    Bytes::from_static(VERSION.as_bytes())
}

/// The response to `GET /api`: the versions of the core group. `address` is the server's `host:port`.
#[must_use]
pub(super) fn core_versions(address: &str) -> Bytes {
    render::json(&ApiVersions {
        kind: "APIVersions",
        versions: vec!["v1"],
        server_addresses: [server_address(address)],
    })
}

/// The response to `GET /apis`: all groups but the core group. `address` is the server's `host:port`.
#[must_use]
pub(super) fn groups(catalogue: &Catalogue, address: &str) -> Bytes {
    let groups = groups_with_versions(catalogue)
        .into_iter()
        .map(|(name, versions)| ApiGroup {
            kind: None,
            api_version: None,
            server_addresses: Some([server_address(address)]),
            ..group_of(name, &versions)
        })
        .collect();
    render::json(&GroupList {
        kind: "APIGroupList",
        groups,
    })
}

/// The response to `GET /apis/GROUP`; `None` for a group that is not served.
#[must_use]
pub(super) fn group(catalogue: &Catalogue, name: &str) -> Option<Bytes> {
    let groups = groups_with_versions(catalogue);
    let (name, versions) = groups.iter().find(|(group, _)| *group == name)?;
    Some(render::json(&group_of(name, versions)))
}

/// The response to `GET /api/v1` and `GET /apis/GROUP/VERSION`; `None` for a version that is not served.
#[must_use]
pub(super) fn resources(catalogue: &Catalogue, group: &str, version: &str) -> Option<Bytes> {
    let mut resources = Vec::new();
    for kind in kinds_of(catalogue, group, version) {
        let entry = |name: String, verbs| Resource {
            name,
            singular_name: "",
            namespaced: kind.resource.namespaced,
            kind: &kind.resource.kind,
            verbs,
            short_names: &[],
        };
        let plural = &kind.resource.gvr.resource;
        resources.push(Resource {
            singular_name: &kind.singular,
            short_names: &kind.short_names,
            ..entry(plural.to_string(), verbs(kind))
        });
        if kind.status == StatusPart::Apart {
            resources.push(entry(format!("{plural}/status"), STATUS_VERBS));
        }
    }
    if resources.is_empty() {
        return None;
    }
    Some(render::json(&ResourceList {
        kind: "APIResourceList",
        // Absent in the core group's list, as in kube-apiserver's.
        api_version: (!group.is_empty()).then_some("v1"),
        group_version: group_version(group, version),
        resources,
    }))
}

/// The aggregated discovery document (v2) for `/api`: the core group.
#[must_use]
pub(super) fn aggregated_core(catalogue: &Catalogue) -> Bytes {
    aggregated(vec![aggregated_group(catalogue, "", &["v1"])])
}

/// The aggregated discovery document (v2) for `/apis`: all groups but the core group.
#[must_use]
pub(super) fn aggregated_groups(catalogue: &Catalogue) -> Bytes {
    let groups = groups_with_versions(catalogue);
    let mut items: Vec<_> = groups
        .iter()
        .map(|(name, versions)| aggregated_group(catalogue, name, versions))
        .collect();
    items.sort_by_key(|group| group.metadata.name);
    aggregated(items)
}

fn aggregated(items: Vec<ApiGroupDiscovery<'_>>) -> Bytes {
    render::json(&Aggregated {
        kind: "APIGroupDiscoveryList",
        api_version: "apidiscovery.k8s.io/v2",
        metadata: NameMeta { name: "" },
        items,
    })
}

fn aggregated_group<'a>(
    catalogue: &'a Catalogue,
    name: &'a str,
    versions: &[&'a str],
) -> ApiGroupDiscovery<'a> {
    let versions = versions
        .iter()
        .map(|version| ApiVersionDiscovery {
            version,
            resources: kinds_of(catalogue, name, version)
                .map(aggregated_resource)
                .collect(),
            freshness: "Current",
        })
        .collect();
    ApiGroupDiscovery {
        metadata: NameMeta { name },
        versions,
    }
}

fn aggregated_resource(kind: &ServedKind) -> ApiResourceDiscovery<'_> {
    let response_kind = || match kind.resource.layout {
        Layout::Typed => ResponseGvk {
            group: "",
            version: "",
            kind: &kind.resource.kind,
        },
        Layout::Dynamic => ResponseGvk {
            group: &kind.resource.gvr.group,
            version: &kind.resource.gvr.version,
            kind: &kind.resource.kind,
        },
    };
    let status = (kind.status == StatusPart::Apart).then(|| Subresource {
        subresource: "status",
        response_kind: response_kind(),
        verbs: STATUS_VERBS,
    });
    ApiResourceDiscovery {
        resource: &kind.resource.gvr.resource,
        response_kind: response_kind(),
        scope: if kind.resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        },
        singular_resource: &kind.singular,
        verbs: verbs(kind),
        short_names: &kind.short_names,
        subresources: status.into_iter().collect(),
    }
}

/// The groups with their versions, in the order of discovery, without the core group.
fn groups_with_versions(catalogue: &Catalogue) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    let gvrs = discovered(catalogue).map(|kind| &kind.resource.gvr);
    for gvr in gvrs.filter(|gvr| !gvr.group.is_empty()) {
        match groups.iter_mut().find(|(group, _)| *group == &*gvr.group) {
            Some((_, versions)) if versions.contains(&&*gvr.version) => {}
            Some((_, versions)) => versions.push(&gvr.version),
            None => groups.push((&gvr.group, vec![&gvr.version])),
        }
    }
    groups
}

/// The kinds of a group and version, in the order of discovery.
fn kinds_of<'a>(
    catalogue: &'a Catalogue,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a ServedKind> {
    discovered(catalogue).filter(move |kind| {
        &*kind.resource.gvr.group == group && &*kind.resource.gvr.version == version
    })
}

fn group_of<'a>(name: &'a str, versions: &[&'a str]) -> ApiGroup<'a> {
    let versions: Vec<_> = versions
        .iter()
        .map(|version| GroupVersion {
            group_version: group_version(name, version),
            version,
        })
        .collect();
    ApiGroup {
        kind: Some("APIGroup"),
        api_version: Some("v1"),
        name,
        preferred_version: versions.first().cloned().unwrap_or(GroupVersion {
            group_version: String::new(),
            version: "",
        }),
        versions,
        server_addresses: None,
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn server_address(address: &str) -> ServerAddress<'_> {
    ServerAddress {
        client_cidr: "0.0.0.0/0",
        server_address: address,
    }
}

fn verbs(kind: &ServedKind) -> &'static [&'static str] {
    let gvr = &kind.resource.gvr;
    if Review::of(&gvr.group, &gvr.version, &gvr.resource).is_some() {
        return REVIEW_VERBS;
    }
    match kind.resource.layout {
        Layout::Typed => TYPED_VERBS,
        Layout::Dynamic => DYNAMIC_VERBS,
    }
}

#[cfg(test)]
mod tests;
