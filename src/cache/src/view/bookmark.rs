//! Bookmarks: events that carry only a version (docs/PROTOCOL.md §4.7).

mod marker;
mod protobuf;

use bytes::Bytes;

use crate::resource::protobuf::{frame_around, type_meta};
use crate::resource::{ByteSpan, Encoding, ResourceKind, ResourceVersion};
pub use marker::Marker;
pub use protobuf::ProtobufTemplate;

/// The template of a resource's bookmarks, in the encoding of its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BookmarkTemplate {
    /// The text around the version.
    Json(JsonTemplate),
    /// The fields around the version, in an object of this type.
    Protobuf {
        /// The message of `apiVersion` and `kind`.
        type_meta: Vec<u8>,
        /// The fields around the version.
        template: ProtobufTemplate,
    },
}

impl BookmarkTemplate {
    /// A template made without a bookmark from upstream: kind, API version and metadata.
    #[must_use]
    pub fn guessed(kind: &ResourceKind) -> Self {
        match kind.encoding {
            Encoding::Json => Self::Json(JsonTemplate::guessed(kind)),
            Encoding::Protobuf => Self::Protobuf {
                type_meta: type_meta(&kind.gvr.api_version(), &kind.kind),
                template: ProtobufTemplate::guessed(),
            },
        }
    }

    /// The template that produces a bookmark object which upstream sent for a resource of this kind; `version` spans the digits.
    ///
    /// `None` if the object does not have a bookmark's layout; then the template from [`Self::guessed`] stays in use.
    #[must_use]
    pub fn seen(object: &[u8], version: ByteSpan, kind: &ResourceKind) -> Option<Self> {
        Some(match kind.encoding {
            Encoding::Json => Self::Json(JsonTemplate::seen(object, version)?),
            Encoding::Protobuf => Self::Protobuf {
                type_meta: type_meta(&kind.gvr.api_version(), &kind.kind),
                template: ProtobufTemplate::seen(object, version)?,
            },
        })
    }

    /// The whole frame of a bookmark.
    #[must_use]
    pub fn frame(&self, version: ResourceVersion, marker: Marker) -> Bytes {
        match self {
            Self::Json(template) => template.frame(version, marker),
            Self::Protobuf {
                type_meta,
                template,
            } => frame_around("BOOKMARK", type_meta, &template.raw(version, marker))
                .0
                .into(),
        }
    }
}

/// The text around the version in a resource's bookmarks.
///
/// Typed objects contain fields that cannot be left out (a Pod bookmark has `"spec":{"containers":null}`), so the template
/// is taken from upstream's own bookmark once there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonTemplate {
    before_version: String,
    /// The text after the version's closing quote: the rest of the metadata, then the rest of the object.
    after_metadata: String,
}

const ANNOTATION: &str = ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}";

const SORTED_ANNOTATION: &str = "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"},";

impl JsonTemplate {
    /// A template made without a bookmark from upstream: kind, API version and metadata.
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

    /// The template that produces a bookmark object which upstream sent; `version` spans the digits.
    ///
    /// `None` if the object does not have a bookmark's layout; then the template from [`Self::guessed`] stays in use.
    #[must_use]
    pub fn seen(object: &[u8], version: ByteSpan) -> Option<Self> {
        let text = std::str::from_utf8(object).ok()?;
        let digits =
            std::str::from_utf8(object.get(version.start as usize..version.end as usize)?).ok()?;
        let (before, after) = (
            text.get(..version.start as usize)?,
            text.get(version.end as usize..)?.strip_prefix('"')?,
        );
        // Dynamic layouts sort annotations before the version, typed ones have them after it. Remove either.
        let template = Self {
            before_version: before.replace(SORTED_ANNOTATION, ""),
            after_metadata: after.replacen(ANNOTATION, "", 1),
        };
        let marker = if text.contains("initial-events-end") {
            Marker::InitialEventsEnd
        } else {
            Marker::None
        };
        // All watches will receive this: a template that does not reproduce the bookmark it was taken from is not used.
        (template.after_metadata.starts_with('}') && template.object(digits, marker) == text)
            .then_some(template)
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
