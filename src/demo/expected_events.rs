//! Records what was written, as the store reports it, to compare it with what each watcher received.

use std::sync::Arc;

use kube_fanout_testkit::apiserver::object::{Event, EventType};
use parking_lot::{Mutex, MutexGuard};

use super::stream::chained;
use crate::resource::{EventKind, ResourceVersion};

/// A digest of a sequence of events: their number and bytes, the last version, and a hash of all of them in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamDigest {
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) last: ResourceVersion,
    chain: u64,
}

impl StreamDigest {
    /// An empty sequence that begins after `version`.
    pub(super) fn after(version: ResourceVersion) -> Self {
        Self {
            last: version,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, kind: EventKind, object: &[u8], version: ResourceVersion) {
        self.events += 1;
        // Plus the rest of the line around the object: the head, a closing brace and a newline.
        self.bytes += (kind.line_head().len() + object.len() + 2) as u64;
        self.last = version;
        self.chain = chained(self.chain, kind, object);
    }
}

/// The digests of the writes to all kinds, by the kind's index. Clones share the same digests; the store updates one clone.
#[derive(Clone, Debug)]
pub(super) struct ExpectedEvents(Arc<Mutex<Vec<StreamDigest>>>);

impl ExpectedEvents {
    pub(super) fn new(kind_count: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![
            StreamDigest::default();
            kind_count
        ])))
    }

    /// The digest of the writes to a kind.
    pub(super) fn digest(&self, kind_index: usize) -> StreamDigest {
        self.digests()[kind_index]
    }

    /// Events and bytes of all writes.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.digests().iter().fold((0, 0), |(events, bytes), one| {
            (events + one.events, bytes + one.bytes)
        })
    }

    /// Restarts all digests after `version`.
    pub(super) fn begin_after(&self, version: ResourceVersion) {
        self.digests().fill(StreamDigest::after(version));
    }

    /// Adds an event of the store.
    pub(super) fn add(&self, event: &Event) {
        let kind = match event.event_type {
            EventType::Added => EventKind::Added,
            EventType::Modified => EventKind::Modified,
            EventType::Deleted => EventKind::Deleted,
        };
        let version = ResourceVersion(event.version());
        self.digests()[event.kind_index].add(kind, &event.object.json(), version);
    }

    fn digests(&self) -> MutexGuard<'_, Vec<StreamDigest>> {
        // Plain numbers are consistent even after a panic.
        self.0.lock()
    }
}
