//! A resource as discovery and lists describe it.

use super::encoding::Encoding;
use super::key::{CacheKey, Gvr};

/// How upstream lays out a resource's JSON, which determines the envelope of lists (docs/PROTOCOL.md §3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Compiled-in kinds: `kind` comes first, and list items have no `kind` and `apiVersion`.
    Typed,
    /// Custom resources: sorted keys, complete list items, `metadata.continue` always present.
    Dynamic,
}

/// A resource's names and layout, as discovery and a first list report them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    /// Group, version and plural name.
    pub gvr: Gvr,
    /// The kind of an object, such as `Pod`.
    pub kind: String,
    /// The kind of a list, such as `PodList`.
    pub list_kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// The layout of its JSON.
    pub layout: Layout,
    /// The encoding of the objects that a cache holds.
    pub encoding: Encoding,
    /// The values of the `Warning` headers that upstream sends with responses, such as that the version is deprecated.
    pub warnings: Vec<String>,
}

impl ResourceKind {
    /// The key of the cache that holds this resource.
    #[must_use]
    pub fn cache_key(&self) -> CacheKey {
        CacheKey {
            gvr: self.gvr.clone(),
            encoding: self.encoding,
        }
    }
}
