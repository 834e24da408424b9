//! Collects the uids of one resource from a watch of its own, and tells which of them upstream deletes. An object that replaces another under
//! its name has another uid, so its name is not held.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::live_uids::LiveUids;
use super::uid_set::UidSet;
use crate::decode::Bookmark;
use crate::resource::{EventKind, Object, ObjectKey, ResourceVersion};
use crate::upstream::sink::{LateChange, Sink, UpstreamWentBack};

pub(super) struct UidSink {
    /// The uids of all objects that upstream has at `version`.
    live: Arc<LiveUids>,
    /// Those of initial data that is not complete yet.
    initial: UidSet,
    /// `None` before the first list of this watch.
    version: Option<ResourceVersion>,
    /// Uids that went since the last batch.
    gone: Vec<Box<str>>,
}

impl UidSink {
    pub(super) fn new(live: Arc<LiveUids>) -> Self {
        Self {
            live,
            initial: UidSet::default(),
            version: None,
            gone: Vec::new(),
        }
    }

    /// Tells also of what was created and deleted between two lists: a token may be bound to it.
    fn remove(&mut self, uid: &str) {
        self.live.update(|uids| {
            uids.remove(uid);
        });
        self.gone.push(uid.into());
    }

    /// Upstream has shown that the watch is alive.
    fn hear(&self) {
        if self.version.is_some() {
            self.live.hear(Instant::now());
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
        self.live.replace(std::mem::take(&mut self.initial));
        self.version = Some(version);
        self.hear();
        Ok(())
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        self.version = self.version.max(Some(object.resource_version()));
        match kind {
            EventKind::Added | EventKind::Modified => {
                self.live.update(|uids| uids.insert(object.uid()));
            }
            EventKind::Deleted => self.remove(object.uid()),
        }
        self.hear();
    }

    fn late(&mut self, kind: EventKind, object: &Object) -> LateChange {
        match (kind, self.live.has(object.uid())) {
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
        self.version.and_then(|_| self.live.len())
    }

    /// Neither names nor versions are held, so a silent watch is compared by the number of objects alone. Its silence ends the reliance
    /// on it all the same: see `contact`.
    fn holds(&self, _versions: &[(ObjectKey, ResourceVersion)]) -> bool {
        true
    }

    fn publish(&mut self) {
        self.live.tell_deleted(std::mem::take(&mut self.gone));
    }

    fn progress(&mut self, version: ResourceVersion) {
        self.version = self.version.max(Some(version));
    }
}

impl fmt::Debug for UidSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UidSink")
            .field("live", &self.live)
            .field("initial", &self.initial)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
