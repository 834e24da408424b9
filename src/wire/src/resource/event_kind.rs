//! What happened to an object.

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
