//! The uids of all objects of one resource that upstream has. One source at a time fills it; when another one takes over, the uids stay until
//! that one has listed.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::contact::FeedContact;
use super::uid_set::UidSet;

/// Receives the uids of objects that are gone.
pub(super) type OnDeleted = Arc<dyn Fn(Vec<Box<str>>) + Send + Sync>;

/// The uids of one resource.
pub(super) struct LiveUids {
    /// `None` before the first list.
    uids: Mutex<Option<UidSet>>,
    pub(super) contact: FeedContact,
    on_deleted: OnDeleted,
}

impl LiveUids {
    pub(super) fn new(on_deleted: OnDeleted) -> Self {
        Self {
            uids: Mutex::default(),
            contact: FeedContact::default(),
            on_deleted,
        }
    }

    /// Replaces all uids by those of a list. What the list lacks is not told: see [`Self::may_have`].
    pub(super) fn replace(&self, uids: UidSet) {
        *self.uids.lock() = Some(uids);
        self.contact.list();
    }

    /// Changes the uids after a list.
    pub(super) fn update(&self, change: impl FnOnce(&mut UidSet)) {
        if let Some(uids) = &mut *self.uids.lock() {
            change(uids);
        }
    }

    /// Tells that objects are gone.
    pub(super) fn tell_deleted(&self, uids: Vec<Box<str>>) {
        if !uids.is_empty() {
            (self.on_deleted)(uids);
        }
    }

    /// Upstream showed at this time that it has told everything.
    pub(super) fn hear(&self, at: Instant) {
        match self.len() {
            Some(_) => self.contact.hear(at),
            None => self.contact.lose(),
        }
    }

    /// Whether upstream has the object, as far as is known.
    pub(super) fn may_have(&self, uid: &str) -> bool {
        match &*self.uids.lock() {
            Some(uids) => uids.contains(uid) || !uids.is_complete(),
            None => true,
        }
    }

    /// Whether the object is known.
    pub(super) fn has(&self, uid: &str) -> bool {
        let uids = self.uids.lock();
        uids.as_ref().is_some_and(|uids| uids.contains(uid))
    }

    /// The number of objects; `None` if not all of them are known.
    pub(super) fn len(&self) -> Option<usize> {
        let uids = self.uids.lock();
        let uids = uids.as_ref().filter(|uids| uids.is_complete());
        uids.map(UidSet::len)
    }
}

impl fmt::Debug for LiveUids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveUids")
            .field("uids", &self.uids)
            .field("contact", &self.contact)
            .finish_non_exhaustive()
    }
}
