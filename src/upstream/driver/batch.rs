//! Changes that will be published together.

use crate::cache::Change;
use crate::resource::{EventKind, Object};

/// Changes in the order they came.
#[derive(Debug, Default)]
pub(super) struct Batch {
    changes: Vec<Change>,
}

impl Batch {
    pub(super) fn push(&mut self, kind: EventKind, object: Object) {
        self.changes.push(match kind {
            EventKind::Added | EventKind::Modified => Change::Put(object),
            EventKind::Deleted => Change::Delete(object),
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }
}
