//! Bookmarks: events that carry nothing but a version (protocol.md §4.7).

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
        let (start, end) = (version.start as usize, version.end as usize);
        let (before, after) = (text.get(..start)?, text.get(end..)?.strip_prefix('"')?);
        // Dynamic layouts sort annotations before the version; both places are ours to fill.
        let before_version = before.replace(
            "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"},",
            "",
        );
        let after_metadata = after.replacen(ANNOTATION, "", 1);
        (before_version.starts_with('{') && after_metadata.starts_with('}')).then_some(Self {
            before_version,
            after_metadata,
        })
    }

    /// The whole event line of a bookmark, newline included.
    #[must_use]
    pub fn line(&self, version: ResourceVersion, marker: Marker) -> Bytes {
        let sorted = self.before_version.starts_with("{\"apiVersion\"");
        let (early, late) = match (marker, sorted) {
            (Marker::None, _) => ("", ""),
            (Marker::InitialEventsEnd, false) => ("", ANNOTATION),
            (Marker::InitialEventsEnd, true) => (
                "\"annotations\":{\"k8s.io/initial-events-end\":\"true\"},",
                "",
            ),
        };
        let before = self
            .before_version
            .strip_suffix("\"resourceVersion\":\"")
            .unwrap_or(&self.before_version);
        let Self { after_metadata, .. } = self;
        let object =
            format!("{before}{early}\"resourceVersion\":\"{version}\"{late}{after_metadata}");
        format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").into()
    }
}

#[cfg(test)]
mod tests;
