//! The kinds that the server serves: a fixed table, and custom kinds from the options.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// A served kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedKind {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name, as in paths.
    pub plural: String,
    /// The kind of one object.
    pub kind: String,
    /// Short name; empty if there is none.
    pub short_name: String,
    /// Whether objects live in namespaces.
    pub is_namespaced: bool,
    /// Whether this is a custom resource: sorted keys, other messages.
    pub is_custom: bool,
    /// Whether the status is written only through `…/NAME/status`.
    pub has_status: bool,
    /// Whether `metadata.generation` counts the changes outside of metadata and status.
    pub has_generation: bool,
}

/// All served kinds, in the order of discovery. A kind is named by its index here.
#[derive(Clone, Debug)]
pub struct Catalogue(Vec<ServedKind>);

/// A text that does not describe a kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form plural.version.group=Kind[:cluster]")]
pub struct InvalidKind(String);

/// API version, plural name, kind, short name, properties.
const BUILT_IN: &str = "
v1                            configmaps           ConfigMap           cm      namespaced
v1                            events               Event               ev      namespaced
v1                            namespaces           Namespace           ns      status generation
v1                            nodes                Node                no      status generation
v1                            pods                 Pod                 po      namespaced status generation
v1                            secrets              Secret              -       namespaced
v1                            serviceaccounts      ServiceAccount      sa      namespaced
v1                            services             Service             svc     namespaced status generation
apiregistration.k8s.io/v1     apiservices          APIService          -       status
apps/v1                       daemonsets           DaemonSet           ds      namespaced status generation
apps/v1                       deployments          Deployment          deploy  namespaced status generation
apps/v1                       replicasets          ReplicaSet          rs      namespaced status generation
apps/v1                       statefulsets         StatefulSet         sts     namespaced status generation
batch/v1                      jobs                 Job                 -       namespaced status generation
coordination.k8s.io/v1        leases               Lease               -       namespaced generation
discovery.k8s.io/v1           endpointslices       EndpointSlice       -       namespaced
rbac.authorization.k8s.io/v1  clusterrolebindings  ClusterRoleBinding  -       cluster
rbac.authorization.k8s.io/v1  clusterroles         ClusterRole         -       cluster
rbac.authorization.k8s.io/v1  rolebindings         RoleBinding         -       namespaced
rbac.authorization.k8s.io/v1  roles                Role                -       namespaced
";

impl ServedKind {
    fn built_in(row: &str) -> Option<Self> {
        let mut words = row.split_whitespace();
        let api_version = words.next()?;
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let (plural, kind, short) = (words.next()?, words.next()?, words.next()?);
        let mut built_in = Self::new(group, version, plural, kind);
        built_in.short_name = short.trim_matches('-').to_owned();
        for property in words {
            match property {
                "namespaced" => built_in.is_namespaced = true,
                "status" => built_in.has_status = true,
                "generation" => built_in.has_generation = true,
                _ => {}
            }
        }
        Some(built_in)
    }

    pub(super) fn new(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            short_name: String::new(),
            is_namespaced: false,
            is_custom: false,
            has_status: false,
            has_generation: false,
        }
    }

    /// A custom resource with a status subresource.
    #[must_use]
    pub fn custom(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            is_namespaced: true,
            is_custom: true,
            has_status: true,
            has_generation: true,
            ..Self::new(group, version, plural, kind)
        }
    }

    /// `v1`, `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `pods`, `widgets.example.com`.
    #[must_use]
    pub fn qualified_plural(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// The path of all objects, such as `/api/v1/pods`.
    #[must_use]
    pub fn collection_path(&self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/{}", self.api_version(), self.plural)
    }

    /// The fields of an object that selectors may name beside name and namespace.
    pub(super) fn selectable_fields(&self) -> &'static [SelectableField] {
        match (self.group.as_str(), self.plural.as_str()) {
            ("", "pods") => POD,
            ("", "nodes") => NODE,
            ("", "namespaces") => NAMESPACE,
            ("", "secrets") => SECRET,
            ("", "services") => SERVICE,
            ("batch", "jobs") => JOB,
            _ => &[],
        }
    }
}

/// A name with its group, as messages write it.
pub(super) fn qualified(name: &str, group: &str) -> String {
    match group {
        "" => name.to_owned(),
        group => format!("{name}.{group}"),
    }
}

impl FromStr for ServedKind {
    type Err = InvalidKind;

    /// Parses `plural.version.group=Kind` or `plural.version.group=Kind:cluster`.
    fn from_str(text: &str) -> Result<Self, InvalidKind> {
        parse_custom(text).ok_or_else(|| InvalidKind(text.to_owned()))
    }
}

fn parse_custom(text: &str) -> Option<ServedKind> {
    let (names, kind) = text.split_once('=')?;
    let (kind, scope) = kind.split_once(':').unwrap_or((kind, "namespaced"));
    let mut parts = names.splitn(3, '.');
    let (plural, version, group) = (parts.next()?, parts.next()?, parts.next()?);
    let is_legal = |part: &&str| !part.is_empty() && !part.contains('/');
    if ![plural, version, group, kind].iter().all(is_legal) {
        return None;
    }
    let is_namespaced = match scope {
        "namespaced" => true,
        "cluster" => false,
        _ => return None,
    };
    Some(ServedKind {
        is_namespaced,
        ..ServedKind::custom(group, version, plural, kind)
    })
}

impl Catalogue {
    /// The built-in kinds, then the extra ones. Of kinds with the same path the first is served.
    #[must_use]
    pub fn new(extra: &[ServedKind]) -> Self {
        let built_in = BUILT_IN.lines().filter_map(ServedKind::built_in);
        let mut kinds: Vec<ServedKind> = Vec::new();
        for kind in built_in.chain(extra.iter().cloned()) {
            let path = kind.collection_path();
            if kinds.iter().all(|known| known.collection_path() != path) {
                kinds.push(kind);
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

    /// The index of a kind by its path.
    #[must_use]
    pub fn index_of(&self, group: &str, version: &str, plural: &str) -> Option<usize> {
        self.0.iter().position(|kind| {
            kind.group == group && kind.version == version && kind.plural == plural
        })
    }

    /// The index of the first kind with this plural name.
    #[must_use]
    pub fn index_of_plural(&self, plural: &str) -> Option<usize> {
        self.0.iter().position(|kind| kind.plural == plural)
    }
}

/// Namespace and name in the form by which lists are sorted: `NAMESPACE/NAME`, or `NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(String);

impl ObjectKey {
    /// The key of an object; the namespace of cluster-scoped objects is empty.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        match namespace {
            "" => Self(name.to_owned()),
            namespace => Self(format!("{namespace}/{name}")),
        }
    }

    /// The whole key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace; empty for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A field that selectors may name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SelectableField {
    pub(super) label: &'static str,
    /// JSON pointer to the value.
    pointer: &'static str,
    /// The value of an absent field.
    default: &'static str,
}

impl SelectableField {
    /// The field's value as a selector compares it.
    pub(super) fn value(&self, object: &Value) -> String {
        match object.pointer(self.pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => {
                self.default.to_owned()
            }
        }
    }
}

const fn field(label: &'static str, pointer: &'static str) -> SelectableField {
    SelectableField {
        label,
        pointer,
        default: "",
    }
}

const POD: &[SelectableField] = &[
    field("spec.nodeName", "/spec/nodeName"),
    field("spec.host", "/spec/nodeName"),
    field("spec.restartPolicy", "/spec/restartPolicy"),
    field("spec.schedulerName", "/spec/schedulerName"),
    field("spec.serviceAccountName", "/spec/serviceAccountName"),
    SelectableField {
        default: "false",
        ..field("spec.hostNetwork", "/spec/hostNetwork")
    },
    field("status.phase", "/status/phase"),
    field("status.podIP", "/status/podIP"),
    // kube-apiserver accepts this label and never fills the field: a list is not text.
    field("status.podIPs", "/status/podIPs"),
    field("status.nominatedNodeName", "/status/nominatedNodeName"),
];
const NODE: &[SelectableField] = &[SelectableField {
    default: "false",
    ..field("spec.unschedulable", "/spec/unschedulable")
}];
const NAMESPACE: &[SelectableField] = &[field("status.phase", "/status/phase")];
const SECRET: &[SelectableField] = &[field("type", "/type")];
const SERVICE: &[SelectableField] = &[
    field("spec.clusterIP", "/spec/clusterIP"),
    field("spec.type", "/spec/type"),
];
const JOB: &[SelectableField] = &[SelectableField {
    default: "0",
    ..field("status.successful", "/status/succeeded")
}];
