//! One event of a resource's history, with the frames that watches send. Each frame is made at most once.

use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;

use super::arrival::{Arrival, WriteAge};
use super::ring::Sequence;
use crate::resource::{EventKind, Object, ResourceVersion, allocated_len};

/// Bytes of memory that an event takes without its objects: itself with its reference counts, its slot in the ring, and the handle of the
/// frame that most watches get, which shares the object's bytes.
pub(super) const EVENT_LEN: usize =
    allocated_len(size_of::<Event>() + 2 * size_of::<usize>()) + SLOT_LEN + FRAME_HANDLE_LEN;
const SLOT_LEN: usize = 2 * size_of::<usize>();
const FRAME_HANDLE_LEN: usize = 48;

/// A change of one object, with the object's states before and after it.
#[derive(Debug)]
pub struct Event {
    sequence: Sequence,
    kind: EventKind,
    resource_version: ResourceVersion,
    /// The new state; for a deletion the last state, with the deletion's version.
    object: Object,
    previous: Option<Object>,
    /// Whether the cache had reached the event's version before it.
    is_continuing: bool,
    arrived_at: Instant,
    /// How old the write was then; known of few events.
    age: Option<WriteAge>,
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
        arrival: Arrival,
    ) -> Self {
        let [added, modified, deleted] = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
        Self {
            sequence,
            kind,
            resource_version: object.resource_version(),
            object,
            previous,
            is_continuing: false,
            arrived_at: arrival.at,
            age: arrival.age,
            added,
            modified,
            deleted,
        }
    }

    /// The same event, of a version that the cache had reached before it.
    #[must_use]
    pub(super) fn continuing(self) -> Self {
        Self {
            is_continuing: true,
            ..self
        }
    }

    /// Whether a client that has a version has this event, if it has everything that was sent with that version first. Events that follow
    /// within a version may have come after the client left.
    #[must_use]
    pub fn is_covered_by(&self, version: ResourceVersion) -> bool {
        self.resource_version < version || (self.resource_version == version && !self.is_continuing)
    }

    /// The oldest version that a watch can resume from if this is the oldest event that is known.
    pub(super) const fn floor(&self) -> ResourceVersion {
        if self.is_continuing {
            self.resource_version
        } else {
            ResourceVersion(self.resource_version.0.saturating_sub(1))
        }
    }

    /// The event's position in the history.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// The kind of the change for a watch without a selector.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// The version that the event carries on the wire.
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// The new state; for a deletion the last state, with the deletion's version.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The state before the event; `None` if the object did not exist.
    #[must_use]
    pub fn previous(&self) -> Option<&Object> {
        self.previous.as_ref()
    }

    /// When the event arrived from upstream.
    #[must_use]
    pub fn arrived_at(&self) -> Instant {
        self.arrived_at
    }

    /// When the event arrived from upstream, and how old it was then.
    #[must_use]
    pub fn arrival(&self) -> Arrival {
        Arrival {
            at: self.arrived_at,
            age: self.age,
        }
    }

    /// The event's frame for a watch that sees it as `kind`. Made once, then shared.
    ///
    /// If the object stops matching a selector, watches with that selector see `Deleted` although the event is `Modified`: they
    /// get the previous state with the event's version (docs/PROTOCOL.md §4.6).
    #[must_use]
    pub fn frame(&self, kind: EventKind) -> Bytes {
        let (cell, leaves_selector) = match kind {
            EventKind::Added => (&self.added, false),
            EventKind::Modified => (&self.modified, false),
            EventKind::Deleted => (&self.deleted, self.kind != EventKind::Deleted),
        };
        let frame = cell.get_or_init(|| match (&self.previous, leaves_selector) {
            (Some(previous), true) => previous.deleted_frame(self.resource_version),
            _ => self.object.frame(kind),
        });
        frame.clone()
    }

    /// Bytes of memory that are freed when the history drops this event: the previous state, and for a deletion also the last
    /// state. Any other new state is also in the snapshot; the event that replaces it there counts it as its previous state.
    /// Frames that are copies are not counted, because they are made later, for views that an object enters or leaves.
    pub(super) fn weight(&self) -> usize {
        let last = (self.kind == EventKind::Deleted).then_some(&self.object);
        let states = self.previous.iter().chain(last);
        EVENT_LEN + states.map(Object::allocated_len).sum::<usize>()
    }
}
