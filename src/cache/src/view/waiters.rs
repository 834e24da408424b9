//! The watches that wait for a view's next batch. A long list is sharded, so that watches that arm themselves on different threads
//! do not contend for one lock; the writer empties one shard at a time.
//!
//! No wake-up is lost. A watch arms its waiter and then reads the view. The writer appends a batch to the view and then empties
//! the shards. Both take the lock of the waiter's shard, so one of them is first:
//!
//! - If the watch is first, its waker is in the shard, and the writer takes it.
//! - If the writer is first, the watch's lock follows the writer's unlock. Everything that the writer did before its unlock, such
//!   as appending the batch, is visible to the watch when it reads the view after arming.
//!
//! So the order must stay: arm, then read. In the loom models the published value is accessed with relaxed ordering, so that only
//! the locks can order it.

use std::sync::{Arc, OnceLock};
use std::task::Waker;

use crossbeam_utils::CachePadded;
use slab::Slab;

use crate::sync::{Mutex, MutexGuard};

/// Number of shards: enough that worker threads rarely contend.
const SHARDS: usize = 4;
/// Up to this number, waiters share one lock. Most views have one or two watches, which are then woken under one lock.
const FEW: usize = 8;

/// The slots of waiters. An armed slot has the waker, and the number of watches that it wakes.
type Shard = Slab<Option<(Waker, u32)>>;

/// The waiters of one view, or of one resource's progress.
#[derive(Debug, Default)]
pub struct WaiterList {
    few: Mutex<Shard>,
    /// The shards of the waiters beyond the first few.
    many: OnceLock<Box<[CachePadded<Mutex<Shard>>; SHARDS]>>,
}

fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // If cloning a waker panics, the list is still consistent.
    shard.lock()
}

impl WaiterList {
    /// A new waiter, not armed. `spread` selects its shard if there are more than a few waiters.
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
        // Create the shards while the first lock is held: `wake_all` depends on it.
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

    /// Wakes all armed waiters, each once. Returns the number of watches that they stand for.
    pub fn wake_all(&self, scratch: &mut Vec<Waker>) -> usize {
        let mut woken = wake(&self.few, scratch);
        // Look up the shards after that lock was released. Either they exist by now, or the waiter that creates them takes the lock
        // later, and its watch sees the batch when it reads the view after arming.
        for shard in self.many.get().into_iter().flat_map(|many| many.iter()) {
            woken += wake(shard, scratch);
        }
        woken
    }
}

fn wake(shard: &Mutex<Shard>, scratch: &mut Vec<Waker>) -> usize {
    let mut woken = 0;
    let mut shard = locked(shard);
    let armed = shard.iter_mut().filter_map(|(_, slot)| slot.take());
    scratch.extend(armed.map(|(waker, watchers)| {
        woken += watchers as usize;
        waker
    }));
    drop(shard);
    scratch.drain(..).for_each(Waker::wake);
    woken
}

/// A watch's slot in a waiter list; dropping it frees the slot.
#[derive(Debug)]
pub struct WatchWaiter {
    list: Arc<WaiterList>,
    /// The shard; `None` for one of the first few waiters.
    shard: Option<usize>,
    key: usize,
}

impl WatchWaiter {
    /// Requests a wake-up with the next batch. Read the view again afterwards: a batch that was appended just before this call
    /// wakes no waiter.
    pub fn arm(&self, waker: &Waker) {
        self.arm_for(waker, 1);
    }

    /// Like [`Self::arm`], for a task that then serves `watchers` watches.
    pub fn arm_for(&self, waker: &Waker, watchers: u32) {
        let mut shard = locked(self.list.shard(self.shard));
        if let Some(slot) = shard.get_mut(self.key) {
            match slot {
                Some((armed, count)) => {
                    armed.clone_from(waker);
                    *count = watchers;
                }
                None => *slot = Some((waker.clone(), watchers)),
            }
        }
    }
}

impl Drop for WatchWaiter {
    fn drop(&mut self) {
        locked(self.list.shard(self.shard)).try_remove(self.key);
    }
}

#[cfg(all(test, feature = "loom"))]
mod models;

#[cfg(test)]
pub(super) mod tests;
