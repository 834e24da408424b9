//! What was written, as the store itself tells it, for comparing with what each watcher got.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::stream::chained;
use crate::apiserver::storage::StoredChange;
use crate::apiserver::store::Publisher;
use crate::resource::{EventKind, ResourceVersion};

/// A course of events: how many, up to which version, and all of them folded into one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamDigest {
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) last: ResourceVersion,
    chain: u64,
}

impl StreamDigest {
    /// A course that begins behind a version.
    pub(super) fn after(version: ResourceVersion) -> Self {
        Self {
            last: version,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, kind: EventKind, object: &[u8], version: ResourceVersion) {
        self.events += 1;
        // The line around an object counts too: an opening, a closing brace, a newline.
        self.bytes += (kind.line_head().len() + object.len() + 2) as u64;
        self.last = version;
        self.chain = chained(self.chain, kind, object);
    }
}

/// The courses of all kinds, by kind. Shared with the publisher that writes them.
#[derive(Clone, Debug)]
pub(super) struct ExpectedEvents(Arc<Mutex<Vec<StreamDigest>>>);

impl ExpectedEvents {
    pub(super) fn new(kind_count: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![
            StreamDigest::default();
            kind_count
        ])))
    }

    /// What was written to a kind since the ledger was opened.
    pub(super) fn course(&self, kind_index: usize) -> StreamDigest {
        self.courses()[kind_index]
    }

    /// What was written in all: events and bytes.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.courses().iter().fold((0, 0), |(events, bytes), one| {
            (events + one.events, bytes + one.bytes)
        })
    }

    /// Sets where all courses begin.
    pub(super) fn begin_after(&self, version: ResourceVersion) {
        self.courses().fill(StreamDigest::after(version));
    }

    fn courses(&self) -> MutexGuard<'_, Vec<StreamDigest>> {
        // Plain numbers are whole whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Publisher for ExpectedEvents {
    fn publish(&mut self, changes: &[StoredChange]) {
        let mut courses = self.courses();
        for change in changes {
            courses[change.kind_index].add(change.event, &change.object, change.version);
        }
    }

    fn progress(&mut self, _: usize, _: ResourceVersion) {}

    fn compact(&mut self, _: usize, _: ResourceVersion) {}
}
