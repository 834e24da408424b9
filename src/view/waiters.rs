//! Who waits for a view's next batch. Kept in shards, so that watchers who arm themselves on different threads don't
//! meet; the writer empties one shard at a time.
//!
//! Why no wake-up is lost: a watcher arms its seat and then looks at the view; the writer fills the view and then empties
//! the shards. Both pass the shard's lock. If the watcher passes first, its waker is there to be taken; if the writer
//! does, what it did before unlocking, the batch, is seen by the look after arming. So the order must stay: arm, then
//! look. In the loom models what is published has no order of its own, so that the locks alone must give it one.

use std::sync::{Arc, OnceLock, PoisonError};
use std::task::Waker;

use crossbeam_utils::CachePadded;
use slab::Slab;

use crate::cache::{Mutex, MutexGuard};

/// Enough that workers rarely meet.
const SHARDS: usize = 4;
/// So many share one lock before others are made: most views have a watcher or two, and wake them by touching one line.
const FEW: usize = 8;

/// Who waits, and for how many watchers.
type Shard = Slab<Option<(Waker, u32)>>;

/// One waiting list.
#[derive(Debug, Default)]
pub struct WaiterList {
    few: Mutex<Shard>,
    /// Of those beyond the first few.
    many: OnceLock<Box<[CachePadded<Mutex<Shard>>; SHARDS]>>,
}

fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A waker that panics leaves the list itself whole.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WaiterList {
    /// A place in the list, not armed. `spread` chooses the shard if there are many.
    #[must_use]
    pub fn waiter(self: &Arc<Self>, spread: usize) -> WatchWaiter {
        let list = Arc::clone(self);
        let mut few = locked(&self.few);
        if few.len() < FEW {
            let key = few.insert(None);
            return WatchWaiter {
                list,
                shard: None,
                key,
            };
        }
        // Made under the lock, for the sake of who wakes.
        let many = self.many.get_or_init(Box::default);
        drop(few);
        let shard = spread % SHARDS;
        let key = locked(&many[shard]).insert(None);
        WatchWaiter {
            list,
            shard: Some(shard),
            key,
        }
    }

    fn shard(&self, shard: Option<usize>) -> &Mutex<Shard> {
        match (shard, self.many.get()) {
            (Some(shard), Some(many)) => &many[shard],
            _ => &self.few,
        }
    }

    /// Wakes all who are armed, once each. Returns how many watchers they stand for.
    pub fn wake_all(&self, scratch: &mut Vec<Waker>) -> usize {
        let mut woken = wake(&self.few, scratch);
        // Looked for after that lock: either they are there, or who makes them passes the lock later and sees the batch.
        for shard in self.many.get().into_iter().flat_map(|many| many.iter()) {
            woken += wake(shard, scratch);
        }
        woken
    }
}

fn wake(shard: &Mutex<Shard>, scratch: &mut Vec<Waker>) -> usize {
    let mut woken = 0;
    let mut shard = locked(shard);
    let armed = shard.iter_mut().filter_map(|(_, place)| place.take());
    scratch.extend(armed.map(|(waker, watchers)| {
        woken += watchers as usize;
        waker
    }));
    drop(shard);
    scratch.drain(..).for_each(Waker::wake);
    woken
}

/// A watcher's place among those who wait; given up when dropped.
#[derive(Debug)]
pub struct WatchWaiter {
    list: Arc<WaiterList>,
    /// `None` among the few.
    shard: Option<usize>,
    key: usize,
}

impl WatchWaiter {
    /// Asks to be woken with the next batch. Look at the view once more afterwards: a batch that came just
    /// before has woken nobody.
    pub fn arm(&self, waker: &Waker) {
        self.arm_for(waker, 1);
    }

    /// The same for somebody who then looks after so many watchers.
    pub fn arm_for(&self, waker: &Waker, watchers: u32) {
        let mut shard = locked(self.list.shard(self.shard));
        if let Some(place) = shard.get_mut(self.key) {
            match place {
                Some((armed, count)) => {
                    armed.clone_from(waker);
                    *count = watchers;
                }
                None => *place = Some((waker.clone(), watchers)),
            }
        }
    }
}

impl Drop for WatchWaiter {
    fn drop(&mut self) {
        locked(self.list.shard(self.shard)).try_remove(self.key);
    }
}

#[cfg(all(test, fanout_loom))]
mod models;

#[cfg(test)]
pub(super) mod tests;
