//! The catalogue of served kinds: a fixed table of built-in kinds, and extra kinds from a flag.

use std::str::FromStr;

use crate::config::ExtraKind;
use crate::protocol::status::StatusDetails;
use crate::resource::{Encoding, Gvr, Layout, ResourceKind};

/// A served kind, with the properties that discovery and the rules of writing use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedKind {
    /// Names, scope and layout.
    pub resource: ResourceKind,
    /// Singular name, such as `pod`.
    pub singular: String,
    /// Short names, such as `po`.
    pub short_names: Vec<String>,
    /// Whether the kind has a status subresource; then writes of the whole object do not change the status.
    pub status: StatusPart,
    /// Whether `metadata.generation` counts changes outside of metadata and status.
    pub generation: Generation,
}

/// Whether a kind has a status subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusPart {
    /// The status is written only through `…/NAME/status`.
    Apart,
    /// The kind has no status subresource.
    None,
}

/// Whether a kind counts generations. Kinds without a spec do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// `metadata.generation` is maintained.
    Counted,
    /// `metadata.generation` is never set.
    None,
}

/// All served kinds, in the order of discovery. Other modules identify a kind by its index here.
#[derive(Clone, Debug)]
pub struct Catalogue(Vec<ServedKind>);

/// The value of a flag that does not describe a kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not of the form plural.version.group=Kind[:cluster]")]
pub struct InvalidExtraKind {
    text: String,
}

/// Group, version, plural, kind, short name, scope, status, generation.
type KindRow = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    KindScope,
    StatusPart,
    Generation,
);

#[derive(Clone, Copy, PartialEq, Eq)]
enum KindScope {
    Namespaced,
    Cluster,
}

use Generation::Counted;
use KindScope::{Cluster, Namespaced};
use StatusPart::Apart;

/// The built-in kinds. The core group comes first, as in discovery, then the others alphabetically.
const BUILT_IN: &[KindRow] = &[
    (
        "",
        "v1",
        "configmaps",
        "ConfigMap",
        "cm",
        Namespaced,
        StatusPart::None,
        Generation::None,
    ),
    (
        "",
        "v1",
        "events",
        "Event",
        "ev",
        Namespaced,
        StatusPart::None,
        Generation::None,
    ),
    (
        "",
        "v1",
        "namespaces",
        "Namespace",
        "ns",
        Cluster,
        Apart,
        Counted,
    ),
    ("", "v1", "nodes", "Node", "no", Cluster, Apart, Counted),
    ("", "v1", "pods", "Pod", "po", Namespaced, Apart, Counted),
    (
        "",
        "v1",
        "secrets",
        "Secret",
        "",
        Namespaced,
        StatusPart::None,
        Generation::None,
    ),
    (
        "",
        "v1",
        "serviceaccounts",
        "ServiceAccount",
        "sa",
        Namespaced,
        StatusPart::None,
        Generation::None,
    ),
    (
        "", "v1", "services", "Service", "svc", Namespaced, Apart, Counted,
    ),
    (
        "apiregistration.k8s.io",
        "v1",
        "apiservices",
        "APIService",
        "",
        Cluster,
        Apart,
        Generation::None,
    ),
    (
        "apps",
        "v1",
        "daemonsets",
        "DaemonSet",
        "ds",
        Namespaced,
        Apart,
        Counted,
    ),
    (
        "apps",
        "v1",
        "deployments",
        "Deployment",
        "deploy",
        Namespaced,
        Apart,
        Counted,
    ),
    (
        "apps",
        "v1",
        "replicasets",
        "ReplicaSet",
        "rs",
        Namespaced,
        Apart,
        Counted,
    ),
    (
        "apps",
        "v1",
        "statefulsets",
        "StatefulSet",
        "sts",
        Namespaced,
        Apart,
        Counted,
    ),
    ("batch", "v1", "jobs", "Job", "", Namespaced, Apart, Counted),
    (
        "coordination.k8s.io",
        "v1",
        "leases",
        "Lease",
        "",
        Namespaced,
        StatusPart::None,
        Counted,
    ),
    (
        "discovery.k8s.io",
        "v1",
        "endpointslices",
        "EndpointSlice",
        "",
        Namespaced,
        StatusPart::None,
        Generation::None,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterrolebindings",
        "ClusterRoleBinding",
        "",
        Cluster,
        StatusPart::None,
        Generation::None,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "ClusterRole",
        "",
        Cluster,
        StatusPart::None,
        Generation::None,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "rolebindings",
        "RoleBinding",
        "",
        Namespaced,
        StatusPart::None,
        Generation::None,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "roles",
        "Role",
        "",
        Namespaced,
        StatusPart::None,
        Generation::None,
    ),
];

impl ServedKind {
    fn built_in(row: &KindRow) -> Self {
        let &(group, version, plural, kind, short, scope, status, generation) = row;
        Self {
            resource: ResourceKind {
                gvr: Gvr::new(group, version, plural),
                kind: kind.to_owned(),
                list_kind: format!("{kind}List"),
                namespaced: scope == Namespaced,
                layout: Layout::Typed,
                encoding: Encoding::Json,
                warnings: Vec::new(),
            },
            singular: kind.to_ascii_lowercase(),
            short_names: if short.is_empty() {
                vec![]
            } else {
                vec![short.to_owned()]
            },
            status,
            generation,
        }
    }

    /// The kind of a review. Reviews are answered but not stored, so they are not in the catalogue.
    pub(super) fn review(
        group: &'static str,
        plural: &'static str,
        kind: &'static str,
        namespaced: bool,
    ) -> Self {
        let scope = if namespaced { Namespaced } else { Cluster };
        let (status, generation) = (StatusPart::None, Generation::None);
        let row = (group, "v1", plural, kind, "", scope, status, generation);
        Self::built_in(&row)
    }

    fn custom(gvr: Gvr, kind: &str, namespaced: bool) -> Self {
        Self {
            resource: ResourceKind {
                gvr,
                kind: kind.to_owned(),
                list_kind: format!("{kind}List"),
                namespaced,
                layout: Layout::Dynamic,
                encoding: Encoding::Json,
                warnings: Vec::new(),
            },
            singular: kind.to_ascii_lowercase(),
            short_names: Vec::new(),
            status: Apart,
            generation: Counted,
        }
    }

    /// The plural name with its group: `pods`, `widgets.example.com`.
    #[must_use]
    pub fn qualified_resource(&self) -> String {
        self.resource.gvr.group_resource()
    }

    /// The kind with its group: `Pod`, `Widget.example.com`.
    #[must_use]
    pub fn qualified_kind(&self) -> String {
        match &*self.resource.gvr.group {
            "" => self.resource.kind.clone(),
            group => format!("{}.{group}", self.resource.kind),
        }
    }

    /// Details of a `Status` about an object, with the plural name as `kind`.
    pub(super) fn resource_details(&self, name: &str) -> StatusDetails {
        self.details(name, &self.resource.gvr.resource)
    }

    /// Details of a `Status` about an object, with the kind as `kind`.
    pub(super) fn kind_details(&self, name: &str) -> StatusDetails {
        self.details(name, &self.resource.kind)
    }

    fn details(&self, name: &str, kind: &str) -> StatusDetails {
        StatusDetails {
            name: name.to_owned(),
            group: self.resource.gvr.group.to_string(),
            kind: kind.to_owned(),
            ..StatusDetails::default()
        }
    }
}

impl FromStr for ServedKind {
    type Err = InvalidExtraKind;

    /// Parses `plural.version.group=Kind` or `plural.version.group=Kind:cluster`. The kind behaves like a custom resource with a
    /// status subresource.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidExtraKind {
            text: text.to_owned(),
        };
        let (names, kind) = text.split_once('=').ok_or_else(invalid)?;
        let (kind, namespaced) = match kind.split_once(':') {
            None => (kind, true),
            Some((kind, "cluster")) => (kind, false),
            Some(_) => return Err(invalid()),
        };
        let mut parts = names.splitn(3, '.');
        let (Some(plural), Some(version), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(invalid());
        };
        if [plural, version, group, kind]
            .iter()
            .any(|part| part.is_empty() || part.contains('/'))
        {
            return Err(invalid());
        }
        Ok(Self::custom(
            Gvr::new(group, version, plural),
            kind,
            namespaced,
        ))
    }
}

impl From<&ExtraKind> for ServedKind {
    fn from(kind: &ExtraKind) -> Self {
        Self::custom(kind.gvr.clone(), &kind.kind, kind.namespaced)
    }
}

impl Catalogue {
    /// The built-in kinds, then the extra ones. If a group, version and plural name repeat, the first kind is served.
    #[must_use]
    pub fn new(extra: &[ServedKind]) -> Self {
        let mut kinds: Vec<_> = BUILT_IN.iter().map(ServedKind::built_in).collect();
        for kind in extra {
            if !kinds
                .iter()
                .any(|known| known.resource.gvr == kind.resource.gvr)
            {
                kinds.push(kind.clone());
            }
        }
        Self(kinds)
    }

    /// All kinds; a kind's position is its index.
    #[must_use]
    pub fn kinds(&self) -> &[ServedKind] {
        &self.0
    }

    /// The kind at an index, which must come from this catalogue.
    #[must_use]
    pub fn kind(&self, index: usize) -> &ServedKind {
        &self.0[index]
    }

    /// The index of the kind with this group, version and plural name.
    #[must_use]
    pub fn index_of(&self, group: &str, version: &str, plural: &str) -> Option<usize> {
        self.0.iter().position(|kind| {
            let gvr = &kind.resource.gvr;
            &*gvr.group == group && &*gvr.version == version && &*gvr.resource == plural
        })
    }

    /// The index of the first kind with this plural name, by which flags name kinds.
    #[must_use]
    pub fn index_of_plural(&self, plural: &str) -> Option<usize> {
        self.0
            .iter()
            .position(|kind| &*kind.resource.gvr.resource == plural)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extra_kind_is_read_from_a_flag() {
        let kind: ServedKind = "gizmos.v1beta1.example.com=Gizmo:cluster".parse().unwrap();
        assert_eq!(
            kind.resource.gvr,
            Gvr::new("example.com", "v1beta1", "gizmos")
        );
        assert_eq!(
            (kind.qualified_kind(), kind.resource.namespaced),
            ("Gizmo.example.com".into(), false)
        );
    }

    #[test]
    fn a_flag_that_names_no_kind_is_refused() {
        for text in [
            "",
            "widgets",
            "widgets.v1=Widget",
            "a.v1.g=",
            "a.v1.g=K:namespaced",
            ".v1.g=K",
            "a.v1.g/h=K",
        ] {
            assert!(text.parse::<ServedKind>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_repeated_kind_is_served_once() {
        let extra: ServedKind = "deployments.v1.apps=Other".parse().unwrap();
        let catalogue = Catalogue::new(&[extra]);
        let index = catalogue.index_of("apps", "v1", "deployments").unwrap();
        assert_eq!(catalogue.kind(index).resource.kind, "Deployment");
        assert_eq!(catalogue.kinds().len(), BUILT_IN.len());
    }
}
