//! The domain types: resource, key, resource version, object and kind of event. No I/O, and no parsing of peers' bytes.
//!
//! Start with [`Object`]: one object at one version, with its wire bytes and the positions of the parts that the gateway reads.
//! [`wire`] and [`protobuf`] hold the protobuf encoding that objects, caches and responses share.

mod fields;
mod key;
mod key_ref;
pub mod names;
mod object;
pub mod protobuf;
mod quote;
mod random;
mod version;
pub mod wire;

pub use fields::{FieldTable, FieldValue, SelectableField};
pub use key::{CacheKey, Gvr, ObjectKey};
pub use key_ref::KeyRef;
pub use object::{ByteSpan, Object, ObjectParts};
pub use quote::{quoted, quoted_byte};
#[cfg(feature = "gateway")]
pub use random::random_uuid;
pub use random::{fraction, random, replay_random};
pub use version::{InvalidResourceVersion, ResourceVersion};

/// What happened to an object: the `type` of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The object is new to the watcher.
    Added,
    /// The object changed.
    Modified,
    /// The object is gone, or no longer matches the watcher's selector.
    Deleted,
}

impl EventKind {
    /// The `type` on the wire: `ADDED`, `MODIFIED` or `DELETED`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    /// The bytes before the object in a line of a JSON watch.
    #[must_use]
    pub const fn line_head(self) -> &'static str {
        match self {
            Self::Added => "{\"type\":\"ADDED\",\"object\":",
            Self::Modified => "{\"type\":\"MODIFIED\",\"object\":",
            Self::Deleted => "{\"type\":\"DELETED\",\"object\":",
        }
    }
}

/// How objects are encoded on the wire: what the gateway requests from upstream, and what a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// `application/json`; a watch event is one line.
    #[default]
    Json,
    /// `application/vnd.kubernetes.protobuf`; each watch event is preceded by its length. Compiled-in kinds only.
    Protobuf,
}

impl Encoding {
    /// `json` or `protobuf`, for log lines and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
        }
    }

    /// The media type of lists and single objects.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The media type of watch responses (docs/PROTOCOL.md §4.11).
    #[must_use]
    pub const fn stream_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

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

/// The upstream feature gates that affect lists and watches. The default is that of Kubernetes 1.36.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// `ShardedListAndWatch`: whether upstream evaluates `shardSelector` (docs/PROTOCOL.md §2.7).
    pub shards: bool,
    /// `CBORServingAndStorage`: whether upstream serves `application/cbor` (docs/PROTOCOL.md §5.9).
    pub cbor: bool,
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
