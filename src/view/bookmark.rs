//! Bookmarks: events that carry nothing but a version (protocol.md §4.7).

#[cfg_attr(not(test), expect(dead_code, reason = "not called yet"))]
mod protobuf;

use bytes::Bytes;

use crate::resource::{ResourceKind, ResourceVersion, Span};

/// Whether a bookmark ends the initial events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A plain bookmark.
    None,
    /// The first bookmark of a streamed list, annotated `k8s.io/initial-events-end: "true"`.
    InitialEventsEnd,
}

/// What stands around the version in a resource's bookmarks.
///
/// Typed objects render fields that cannot be left out (a Pod bookmark has `"spec":{"containers":null}`), so the
/// shape is taken from upstream's own bookmark when one has been seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookmarkShape {
    before_version: String,
    /// After the version's closing quote: the rest of metadata follows, then the rest of the object.
    after_metadata: String,
}

const ANNOTATION: &str = ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}";

const SORTED_ANNOTATION: &str = "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"},";

impl BookmarkShape {
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
    pub fn seen(object: &[u8], version: Span) -> Option<Self> {
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
