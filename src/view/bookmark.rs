//! Bookmarks: events that carry nothing but a version (docs/PROTOCOL.md §4.7).

mod protobuf;

use bytes::Bytes;

use crate::resource::protobuf::{frame_around, type_meta};
use crate::resource::{ByteSpan, Encoding, ResourceKind, ResourceVersion};
pub use protobuf::ProtobufTemplate;

/// Whether a bookmark ends the initial events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A plain bookmark.
    None,
    /// The first bookmark of a streamed list, annotated `k8s.io/initial-events-end: "true"`.
    InitialEventsEnd,
}

/// How a resource's bookmarks look, in the encoding of its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BookmarkTemplate {
    /// As text around the version.
    Json(JsonTemplate),
    /// As fields around the version, in an object of this type.
    Protobuf {
        /// The message of `apiVersion` and `kind`.
        type_meta: Vec<u8>,
        /// The fields.
        shape: ProtobufTemplate,
    },
}

impl BookmarkTemplate {
    /// What can be told without having seen one: kind, version of the API, metadata.
    #[must_use]
    pub fn guessed(kind: &ResourceKind) -> Self {
        match kind.encoding {
            Encoding::Json => Self::Json(JsonTemplate::guessed(kind)),
            Encoding::Protobuf => Self::Protobuf {
                type_meta: type_meta(&kind.gvr.api_version(), &kind.kind),
                shape: ProtobufTemplate::guessed(),
            },
        }
    }

    /// The shape of a bookmark object that upstream sent of a resource of this kind; `version` spans the digits.
    ///
    /// `None` when the object is not laid out as bookmarks are: then the guess stays.
    #[must_use]
    pub fn seen(object: &[u8], version: ByteSpan, kind: &ResourceKind) -> Option<Self> {
        Some(match kind.encoding {
            Encoding::Json => Self::Json(JsonTemplate::seen(object, version)?),
            Encoding::Protobuf => Self::Protobuf {
                type_meta: type_meta(&kind.gvr.api_version(), &kind.kind),
                shape: ProtobufTemplate::seen(object, version)?,
            },
        })
    }

    /// The whole frame of a bookmark.
    #[must_use]
    pub fn frame(&self, version: ResourceVersion, marker: Marker) -> Bytes {
        match self {
            Self::Json(shape) => shape.frame(version, marker),
            Self::Protobuf { type_meta, shape } => {
                let raw = shape.raw(version, marker);
                frame_around("BOOKMARK", type_meta, &raw).0.into()
            }
        }
    }
}

/// What stands around the version in a resource's bookmarks.
///
/// Typed objects render fields that cannot be left out (a Pod bookmark has `"spec":{"containers":null}`), so the
/// shape is taken from upstream's own bookmark when one has been seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonTemplate {
    before_version: String,
    /// After the version's closing quote: the rest of metadata follows, then the rest of the object.
    after_metadata: String,
}

const ANNOTATION: &str = ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}";

const SORTED_ANNOTATION: &str = "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"},";

impl JsonTemplate {
    /// What can be told without having seen one: kind, version of the API, metadata.
    #[must_use]
    pub fn guessed(kind: &ResourceKind) -> Self {
        let (name, api_version) = (&kind.kind, kind.gvr.api_version());
        let before_version = match kind.layout {
            crate::resource::Layout::Typed => format!(
                "{{\"kind\":\"{name}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\""
            ),
            crate::resource::Layout::Dynamic => format!(
                "{{\"apiVersion\":\"{api_version}\",\"kind\":\"{name}\",\"metadata\":{{\"resourceVersion\":\""
            ),
        };
        Self {
            before_version,
            after_metadata: "}}".into(),
        }
    }

    /// The shape of a bookmark object that upstream sent; `version` spans the digits.
    ///
    /// `None` when the object is not laid out as bookmarks are: then the guess stays.
    #[must_use]
    pub fn seen(object: &[u8], version: ByteSpan) -> Option<Self> {
        let text = std::str::from_utf8(object).ok()?;
        let digits =
            std::str::from_utf8(object.get(version.start as usize..version.end as usize)?).ok()?;
        let (before, after) = (
            text.get(..version.start as usize)?,
            text.get(version.end as usize..)?.strip_prefix('"')?,
        );
        // Dynamic layouts sort annotations before the version; both places are ours to fill.
        let shape = Self {
            before_version: before.replace(SORTED_ANNOTATION, ""),
            after_metadata: after.replacen(ANNOTATION, "", 1),
        };
        let marker = if text.contains("initial-events-end") {
            Marker::InitialEventsEnd
        } else {
            Marker::None
        };
        // All watchers will be sent this: what does not give back the bookmark it was taken from is not used.
        (shape.after_metadata.starts_with('}') && shape.object(digits, marker) == text)
            .then_some(shape)
    }

    /// The whole frame of a bookmark.
    #[must_use]
    pub fn frame(&self, version: ResourceVersion, marker: Marker) -> Bytes {
        let object = self.object(&version.to_string(), marker);
        format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").into()
    }

    fn object(&self, version: &str, marker: Marker) -> String {
        let sorted = self.before_version.starts_with("{\"apiVersion\"");
        let (early, late) = match (marker, sorted) {
            (Marker::None, _) => ("", ""),
            (Marker::InitialEventsEnd, false) => ("", ANNOTATION),
            (Marker::InitialEventsEnd, true) => (SORTED_ANNOTATION, ""),
        };
        let before = self
            .before_version
            .strip_suffix("\"resourceVersion\":\"")
            .unwrap_or(&self.before_version);
        let Self { after_metadata, .. } = self;
        format!("{before}{early}\"resourceVersion\":\"{version}\"{late}{after_metadata}")
    }
}

#[cfg(test)]
mod tests;
