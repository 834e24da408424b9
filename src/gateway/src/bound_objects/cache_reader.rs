//! Reads the uids of a resource from the gateway's own cache, which costs upstream nothing. Keeps no cache alive.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::live_uids::LiveUids;
use super::uid_set::UidSet;
use crate::cache::{Epoch, Lagged, Sequence, WatchCache};
use crate::resource::{EventKind, Gvr};

/// A cache that clients are served from.
pub(crate) struct KeptCache {
    pub(crate) cache: Arc<WatchCache>,
    /// The time since upstream last proved that the cache has everything.
    pub(crate) age: Duration,
}

/// Finds the cache of a resource, if there is one.
pub(crate) type CacheLookup = Arc<dyn Fn(&Gvr) -> Option<KeptCache> + Send + Sync>;

/// What has been read of a cache.
pub(super) struct CacheReader<'a> {
    live: &'a LiveUids,
    position: Option<CachePosition>,
}

struct CachePosition {
    cache: Weak<WatchCache>,
    epoch: Epoch,
    next: Sequence,
}

impl<'a> CacheReader<'a> {
    pub(super) const fn new(live: &'a LiveUids) -> Self {
        Self {
            live,
            position: None,
        }
    }

    /// Takes in what has changed in the cache since the last call. A cache that was replaced, or filled by another list, or whose history is
    /// gone meanwhile, is read as a list.
    pub(super) fn read(&mut self, kept: &KeptCache, now: Instant) {
        let Some(snapshot) = kept.cache.snapshot() else {
            return;
        };
        let position = self.position.take().filter(|position| {
            position.epoch == snapshot.epoch && is_of(&position.cache, &kept.cache)
        });
        let next = position.and_then(|position| self.follow(&kept.cache, position.next).ok());
        let next = next.unwrap_or_else(|| {
            let mut uids = UidSet::default();
            let objects = snapshot.objects.iter();
            objects.for_each(|object| uids.insert(object.uid()));
            self.live.replace(uids);
            snapshot.sequence
        });
        self.position = Some(CachePosition {
            cache: Arc::downgrade(&kept.cache),
            epoch: snapshot.epoch,
            next,
        });
        if let Some(proven_at) = now.checked_sub(kept.age) {
            self.live.hear(proven_at);
        }
    }

    /// Takes in the events from `next` on. Returns the sequence of the event after them.
    fn follow(&self, cache: &WatchCache, next: Sequence) -> Result<Sequence, Lagged> {
        let mut gone = Vec::new();
        let mut read = Ok(next);
        self.live.update(|uids| {
            read = cache.history().read(next, |_, event| {
                let object = event.object();
                let is_deleted = event.kind() == EventKind::Deleted;
                let previous = event.previous().map(|previous| previous.uid());
                let replaced = previous.filter(|uid| *uid != object.uid());
                for uid in replaced.into_iter().chain(is_deleted.then(|| object.uid())) {
                    uids.remove(uid);
                    gone.push(uid.into());
                }
                if !is_deleted {
                    uids.insert(object.uid());
                }
                ControlFlow::Continue(())
            });
        });
        self.live.tell_deleted(gone);
        read
    }
}

fn is_of(known: &Weak<WatchCache>, cache: &Arc<WatchCache>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(cache))
}

#[cfg(test)]
mod tests;
