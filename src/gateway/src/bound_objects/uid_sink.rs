//! Collects the uids of one resource, and tells which of them are gone: those that upstream deletes, and those that a list lacks after
//! deletions were missed. An object that replaces another under its name has another uid, so its name is not held.

use std::fmt;
use std::sync::Arc;

use super::contact::FeedContact;
use super::uid_set::UidSet;
use crate::decode::Bookmark;
use crate::resource::{EventKind, Object, ObjectKey, ResourceVersion};
use crate::upstream::sink::{LateChange, Sink, UpstreamWentBack};

/// Receives the uids of objects that are gone.
pub(super) type OnDeleted = Arc<dyn Fn(Vec<Box<str>>) + Send + Sync>;

pub(super) struct UidSink {
    /// The uids of all objects that upstream has at `version`.
    uids: UidSet,
    /// Those of initial data that is not complete yet.
    initial: UidSet,
    /// `None` before the first list.
    version: Option<ResourceVersion>,
    /// Uids that went since the last batch.
    gone: Vec<Box<str>>,
    on_deleted: OnDeleted,
    contact: Arc<FeedContact>,
}

impl UidSink {
    pub(super) fn new(on_deleted: OnDeleted, contact: Arc<FeedContact>) -> Self {
        contact.lose();
        Self {
            uids: UidSet::default(),
            initial: UidSet::default(),
            version: None,
            gone: Vec::new(),
            on_deleted,
            contact,
        }
    }

    /// Tells also of what was created and deleted between two lists: a token may be bound to it.
    fn remove(&mut self, uid: &str) {
        self.uids.remove(uid);
        self.gone.push(uid.into());
    }

    fn tell(&mut self) {
        if !self.gone.is_empty() {
            (self.on_deleted)(std::mem::take(&mut self.gone));
        }
    }

    /// Upstream has shown that the watch is alive.
    fn hear(&self) {
        match self.version {
            Some(_) if self.uids.is_complete() => self.contact.hear(),
            Some(_) | None => self.contact.lose(),
        }
    }
}

impl Sink for UidSink {
    /// A bookmark that is older than the state comes from a server that lags.
    fn bookmark(&mut self, _object: &[u8], bookmark: &Bookmark) {
        if Some(bookmark.resource_version) >= self.version {
            self.hear();
        }
    }

    fn restart(&mut self) {
        self.initial = UidSet::default();
    }

    fn initial(&mut self, kind: EventKind, object: Object) {
        match kind {
            EventKind::Added | EventKind::Modified => self.initial.insert(object.uid()),
            EventKind::Deleted => {
                self.initial.remove(object.uid());
            }
        }
    }

    fn replace(&mut self, version: ResourceVersion) -> Result<(), UpstreamWentBack> {
        let initial = std::mem::take(&mut self.initial);
        self.gone.extend(self.uids.gone_from(&initial));
        self.uids = initial;
        self.version = Some(version);
        self.tell();
        self.hear();
        Ok(())
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        self.version = self.version.max(Some(object.resource_version()));
        match kind {
            EventKind::Added | EventKind::Modified => self.uids.insert(object.uid()),
            EventKind::Deleted => self.remove(object.uid()),
        }
        self.hear();
    }

    fn late(&mut self, kind: EventKind, object: &Object) -> LateChange {
        match (kind, self.uids.contains(object.uid())) {
            (EventKind::Deleted, true) => {
                self.remove(object.uid());
                LateChange::Applied
            }
            (EventKind::Deleted, false) | (EventKind::Added | EventKind::Modified, true) => {
                LateChange::Known
            }
            // It may be gone again: only a list can tell.
            (EventKind::Added | EventKind::Modified, false) => LateChange::Missing,
        }
    }

    fn object_count(&self) -> Option<usize> {
        (self.version.is_some() && self.uids.is_complete()).then(|| self.uids.len())
    }

    /// Neither names nor versions are held, so a silent watch is compared by the number of objects alone. Its silence ends the reliance
    /// on it all the same: see `contact`.
    fn holds(&self, _versions: &[(ObjectKey, ResourceVersion)]) -> bool {
        true
    }

    fn publish(&mut self) {
        self.tell();
    }

    fn progress(&mut self, version: ResourceVersion) {
        self.version = self.version.max(Some(version));
    }
}

impl fmt::Debug for UidSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UidSink")
            .field("uids", &self.uids)
            .field("initial", &self.initial)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
