//! How a bookmark marks the end of the initial events.

/// Whether a bookmark ends the initial events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A plain bookmark.
    None,
    /// The first bookmark of a streamed list, annotated `k8s.io/initial-events-end: "true"`.
    InitialEventsEnd,
}
