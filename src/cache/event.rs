//! One event of a resource's history, with the frames that watchers get, each made at most once.

use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;

use super::ring::Sequence;
use crate::resource::{EventKind, Object, ResourceVersion};

/// What happened to one object, and what it was before.
#[derive(Debug)]
pub struct Event {
    sequence: Sequence,
    kind: EventKind,
    resource_version: ResourceVersion,
    /// The new state; of a deletion the last one, with the deletion's version.
    object: Object,
    previous: Option<Object>,
    published_at: Instant,
    added: OnceLock<Bytes>,
    modified: OnceLock<Bytes>,
    deleted: OnceLock<Bytes>,
}

impl Event {
    pub(super) fn new(
        sequence: Sequence,
        kind: EventKind,
        object: Object,
        previous: Option<Object>,
        published_at: Instant,
    ) -> Self {
        let [added, modified, deleted] = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
        Self {
            sequence,
            kind,
            resource_version: object.resource_version(),
            object,
            previous,
            published_at,
            added,
            modified,
            deleted,
        }
    }

    /// Our own count of this event.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// What happened, seen without a selector.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// The version that the event carries on the wire.
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// The new state; of a deletion the last one, with the deletion's version.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The state before the event.
    #[must_use]
    pub fn previous(&self) -> Option<&Object> {
        self.previous.as_ref()
    }

    /// When it became readable.
    #[must_use]
    pub fn published_at(&self) -> Instant {
        self.published_at
    }

    /// The event's frame for a watcher to whom it is of `kind`. Made once, then shared.
    ///
    /// An object that leaves a selector is `Deleted` to its watchers while the event itself is not: they
    /// get the previous state with the event's version (docs/PROTOCOL.md §4.6).
    #[must_use]
    pub fn frame(&self, kind: EventKind) -> Bytes {
        let (cell, left) = match kind {
            EventKind::Added => (&self.added, false),
            EventKind::Modified => (&self.modified, false),
            EventKind::Deleted => (&self.deleted, self.kind != EventKind::Deleted),
        };
        let frame = cell.get_or_init(|| match (&self.previous, left) {
            (Some(previous), true) => previous.deleted_frame(self.resource_version),
            _ => self.object.frame(kind),
        });
        frame.clone()
    }

    /// Bytes of memory that are free again when the history lets go of this event: the state before it, and of a deletion
    /// the last one. Any other new state is held by the snapshot until the next event replaces it, which then counts it.
    /// Frames that are copies are not counted: they are made later, for views that an object enters or leaves.
    pub(super) fn weight(&self) -> usize {
        let last = (self.kind == EventKind::Deleted).then_some(&self.object);
        let states = self.previous.iter().chain(last);
        size_of::<Self>() + states.map(Object::memory_len).sum::<usize>()
    }
}
