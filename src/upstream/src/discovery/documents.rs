//! Parses the four kinds of discovery documents. Sends no requests.

use serde::{Deserialize, Deserializer};

use super::resource::DiscoveredResource;
use crate::resource::Gvr;

/// The document of one discovery path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DiscoveryResponse {
    /// `APIGroupDiscoveryList`: all resources at once. `stale` are group versions whose aggregated API server does not
    /// respond now; what the document says about them may be outdated, and clients disregard it.
    Aggregated {
        found: Vec<DiscoveredResource>,
        stale: Vec<GroupVersionEntry>,
    },
    /// `APIVersions` or `APIGroupList`: the group versions, each of which has a document of its own.
    Groups(Vec<GroupVersionEntry>),
    /// `APIResourceList`: the resources of one group and version.
    Resources(Vec<DiscoveredResource>),
}

/// A group and version with a document of its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GroupVersionEntry {
    pub(super) group: String,
    version: String,
}

impl GroupVersionEntry {
    /// The path of its document.
    pub(super) fn path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }
}

/// Parses any of the documents. The server chose which one to send, so `kind` decides.
pub(super) fn read(bytes: &[u8]) -> serde_json::Result<DiscoveryResponse> {
    Ok(match serde_json::from_slice(bytes)? {
        DiscoveryDocument::APIGroupDiscoveryList { items } => read_aggregated(items),
        DiscoveryDocument::APIVersions { versions } => DiscoveryResponse::Groups(
            versions
                .into_iter()
                .map(|version| GroupVersionEntry {
                    group: String::new(),
                    version,
                })
                .collect(),
        ),
        DiscoveryDocument::APIGroupList { groups } => DiscoveryResponse::Groups(
            groups
                .into_iter()
                .flat_map(|group| {
                    let name = group.name;
                    group
                        .versions
                        .into_iter()
                        .map(move |listed| GroupVersionEntry {
                            group: name.clone(),
                            version: listed.version,
                        })
                })
                .collect(),
        ),
        DiscoveryDocument::APIResourceList {
            group_version,
            resources,
        } => DiscoveryResponse::Resources(read_resources(&group_version, resources)),
    })
}

fn read_aggregated(items: Vec<AggregatedGroup>) -> DiscoveryResponse {
    let mut found = Vec::new();
    let mut stale = Vec::new();
    for item in items {
        let group = item.metadata.name;
        for version in item.versions {
            if version.freshness.as_deref() == Some("Stale") {
                stale.push(GroupVersionEntry {
                    group: group.clone(),
                    version: version.version,
                });
                continue;
            }
            for resource in version.resources {
                found.push(DiscoveredResource {
                    gvr: Gvr::new(&group, &version.version, &resource.resource),
                    kind: resource.response_kind.unwrap_or_default().kind,
                    namespaced: resource.scope == "Namespaced",
                    list: offers(&resource.verbs, "list"),
                    watch: offers(&resource.verbs, "watch"),
                });
            }
        }
    }
    DiscoveryResponse::Aggregated { found, stale }
}

/// Subresources are listed beside their resources as `pods/status`; they are never listed or watched themselves.
fn read_resources(group_version: &str, resources: Vec<ListedResource>) -> Vec<DiscoveredResource> {
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    resources
        .into_iter()
        .filter(|resource| !resource.name.contains('/'))
        .map(|resource| DiscoveredResource {
            gvr: Gvr::new(group, version, &resource.name),
            kind: resource.kind,
            namespaced: resource.namespaced,
            list: offers(&resource.verbs, "list"),
            watch: offers(&resource.verbs, "watch"),
        })
        .collect()
}

fn offers(verbs: &[String], verb: &str) -> bool {
    verbs.iter().any(|offered| offered == verb)
}

/// A Go server writes an empty list as `null` where the field is required.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(tag = "kind")]
#[expect(
    clippy::enum_variant_names,
    reason = "variants are named as the kinds on the wire"
)]
enum DiscoveryDocument {
    APIGroupDiscoveryList {
        #[serde(default, deserialize_with = "null_is_empty")]
        items: Vec<AggregatedGroup>,
    },
    APIVersions {
        #[serde(default, deserialize_with = "null_is_empty")]
        versions: Vec<String>,
    },
    APIGroupList {
        #[serde(default, deserialize_with = "null_is_empty")]
        groups: Vec<ListedGroup>,
    },
    APIResourceList {
        #[serde(rename = "groupVersion")]
        group_version: String,
        #[serde(default, deserialize_with = "null_is_empty")]
        resources: Vec<ListedResource>,
    },
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: GroupName,
    #[serde(default, deserialize_with = "null_is_empty")]
    versions: Vec<AggregatedVersion>,
}

/// The core group has no name.
#[derive(Default, Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    resources: Vec<AggregatedResource>,
    freshness: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct ListedGroup {
    name: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    versions: Vec<ListedVersion>,
}

#[derive(Deserialize)]
struct ListedVersion {
    version: String,
}

#[derive(Deserialize)]
struct ListedResource {
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default, deserialize_with = "null_is_empty")]
    verbs: Vec<String>,
}
