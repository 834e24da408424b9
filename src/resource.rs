//! The words of the domain: resource, key, resource version, object, kind of event. No IO, no parsing of peers' bytes.

mod fields;
mod key;
mod key_ref;
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
pub use random::{fraction, random, random_uuid, replay_random};
pub use version::{InvalidResourceVersion, ResourceVersion};

/// What happened to an object, as a watch event's `type` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The object is new to the watcher.
    Added,
    /// The object changed.
    Modified,
    /// The object is gone, or left the watcher's selector.
    Deleted,
}

impl EventKind {
    /// The wire word: `ADDED`, `MODIFIED` or `DELETED`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    /// What stands before the object in an event line.
    #[must_use]
    pub const fn line_head(self) -> &'static str {
        match self {
            Self::Added => "{\"type\":\"ADDED\",\"object\":",
            Self::Modified => "{\"type\":\"MODIFIED\",\"object\":",
            Self::Deleted => "{\"type\":\"DELETED\",\"object\":",
        }
    }
}

/// How objects are written on the wire: what upstream is asked for, and what a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// `application/json`, a watch event a line.
    #[default]
    Json,
    /// `application/vnd.kubernetes.protobuf`, watch events with their length before them. Compiled-in kinds only.
    Protobuf,
}

impl Encoding {
    /// `json` or `protobuf`, for people and metrics.
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

    /// The media type that watch responses bear (docs/PROTOCOL.md §4.11).
    #[must_use]
    pub const fn stream_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

/// How a resource's JSON is laid out upstream: decides list envelopes (docs/PROTOCOL.md §3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Compiled-in kinds: `kind` first, list items without `kind` and `apiVersion`.
    Typed,
    /// Custom resources: sorted keys, list items whole, `metadata.continue` always present.
    Dynamic,
}

/// What a resource is called and how it is laid out, as discovery and a first list tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    /// Group, version, plural name.
    pub gvr: Gvr,
    /// `Pod`.
    pub kind: String,
    /// `PodList`.
    pub list_kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Layout of its JSON.
    pub layout: Layout,
    /// How a cache holds its objects.
    pub encoding: Encoding,
    /// What upstream warns of whoever reads it, as `Warning` headers have it: that its version is deprecated.
    pub warnings: Vec<String>,
}

/// What upstream's feature gates change of lists and watches. The default is what 1.36 has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// `ShardedListAndWatch`: whether `shardSelector` is heeded (docs/PROTOCOL.md §2.7).
    pub shards: bool,
    /// `CBORServingAndStorage`: whether `application/cbor` is one of the served types (docs/PROTOCOL.md §5.9).
    pub cbor: bool,
}

impl ResourceKind {
    /// The key of the cache that holds it.
    #[must_use]
    pub fn cache_key(&self) -> CacheKey {
        CacheKey {
            gvr: self.gvr.clone(),
            encoding: self.encoding,
        }
    }
}
