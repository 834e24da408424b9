//! Names of resources, caches and objects.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::Encoding;

/// Group, version and plural resource name. The core group is `""`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvr {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// API version, such as `v1`.
    pub version: Arc<str>,
    /// Plural name, such as `pods`.
    pub resource: Arc<str>,
}

impl Gvr {
    /// Builds a name from its three parts.
    #[must_use]
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// Whether these are Events, in either of their groups. kube-apiserver itself keeps no watch cache of them and sends no bookmarks for
    /// them (docs/PROTOCOL.md §0.1).
    #[must_use]
    pub fn is_events(&self) -> bool {
        &*self.resource == "events" && matches!(&*self.group, "" | "events.k8s.io")
    }

    /// `v1` or `apps/v1`, as in an object's `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `pods` or `deployments.apps`, as error messages name a resource.
    #[must_use]
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_string()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// URL path of the collection over all namespaces, without a trailing slash.
    #[must_use]
    pub fn collection_path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}/{}", self.version, self.resource)
        } else {
            format!("/apis/{}/{}/{}", self.group, self.version, self.resource)
        }
    }
}

impl fmt::Display for Gvr {
    /// `pods.v1` or `deployments.v1.apps`, the form that flags and metrics use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resource, self.version)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// The key of a cache: a resource in one encoding. Each cache has an upstream watch of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey {
    /// The resource.
    pub gvr: Gvr,
    /// The encoding of its objects.
    pub encoding: Encoding,
}

impl CacheKey {
    /// The key of a resource's cache in JSON.
    #[must_use]
    pub fn json(gvr: &Gvr) -> Self {
        Self {
            gvr: gvr.clone(),
            encoding: Encoding::Json,
        }
    }

    /// `pods.v1.json` or `leases.v1.coordination.k8s.io.protobuf`: the name of the cache's state in files and URLs.
    #[must_use]
    pub fn state_name(&self) -> String {
        format!("{}.{}", self.gvr, self.encoding.as_str())
    }

    /// The key with this [`CacheKey::state_name`].
    #[must_use]
    pub fn of_state_name(name: &str) -> Option<Self> {
        let (gvr, encoding) = name.rsplit_once('.')?;
        let (resource, rest) = gvr.split_once('.')?;
        let (version, group) = rest.split_once('.').unwrap_or((rest, ""));
        let encodings = [Encoding::Json, Encoding::Protobuf];
        let encoding = encodings.into_iter().find(|e| e.as_str() == encoding)?;
        let gvr = Gvr::new(group, version, resource);
        Some(Self { gvr, encoding })
    }
}

impl fmt::Display for CacheKey {
    /// `pods.v1`, or `pods.v1 in protobuf`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.encoding {
            Encoding::Json => self.gvr.fmt(f),
            Encoding::Protobuf => write!(f, "{} in protobuf", self.gvr),
        }
    }
}

/// An object's name in its resource: `namespace/name`, or `name` when cluster-scoped.
///
/// Ordered bytewise by the joined string, which is the order of lists (docs/PROTOCOL.md §3.8).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Joins namespace and name; an empty namespace means cluster-scoped.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            Self(name.into())
        } else {
            Self(format!("{namespace}/{name}").into())
        }
    }

    /// The namespace; empty when cluster-scoped.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }

    /// The joined string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_the_joined_string() {
        let mut keys = [
            ObjectKey::new("a", "x"),
            ObjectKey::new("a-b", "x"),
            ObjectKey::new("", "a"),
        ];
        keys.sort();
        assert_eq!(
            keys.each_ref().map(ObjectKey::as_str),
            ["a", "a-b/x", "a/x"]
        );
    }

    #[test]
    fn a_key_gives_back_its_parts() {
        assert_eq!(
            (
                ObjectKey::new("ns", "n").namespace(),
                ObjectKey::new("ns", "n").name()
            ),
            ("ns", "n")
        );
        assert_eq!(
            (
                ObjectKey::new("", "n").namespace(),
                ObjectKey::new("", "n").name()
            ),
            ("", "n")
        );
    }

    #[test]
    fn a_resource_is_formatted_for_flags_and_paths() {
        let core = Gvr::new("", "v1", "pods");
        let apps = Gvr::new("apps", "v1", "deployments");
        assert_eq!(
            (core.to_string(), core.collection_path()),
            ("pods.v1".into(), "/api/v1/pods".into())
        );
        assert_eq!(
            (apps.to_string(), apps.group_resource()),
            ("deployments.v1.apps".into(), "deployments.apps".into())
        );
    }
}
