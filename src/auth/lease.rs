//! Permission of streams that are open. It may be revoked while they are.

use std::future::{Future, poll_fn};
#[cfg(not(fanout_loom))]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};
#[cfg(not(fanout_loom))]
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

#[cfg(fanout_loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(fanout_loom)]
use loom::sync::{Mutex, MutexGuard};

use slab::Slab;

/// Permission of all streams that ask the same on behalf of the same caller. Clones are the same permission.
#[derive(Clone, Debug, Default)]
pub struct Lease(Arc<LeaseState>);

#[derive(Debug, Default)]
struct LeaseState {
    revoked: AtomicBool,
    wakers: Mutex<Slab<Option<Waker>>>,
}

impl Lease {
    /// A permission that is not revoked.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Revokes it, and wakes the streams that hold it.
    pub fn revoke(&self) {
        // Set first, woken after: a stream that registers in between sees it.
        self.0.revoked.store(true, Ordering::Release);
        let wakers: Vec<Waker> = self
            .wakers()
            .iter_mut()
            .filter_map(|(_, waker)| waker.take())
            .collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether it was revoked.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.0.revoked.load(Ordering::Acquire)
    }

    /// The same permission without keeping it.
    #[must_use]
    pub fn downgrade(&self) -> WeakLease {
        WeakLease(Arc::downgrade(&self.0))
    }

    /// Number of streams that hold it.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.wakers().len()
    }

    /// One stream's hold on it.
    #[must_use]
    pub fn hold(&self) -> LeaseHold {
        let key = self.wakers().insert(None);
        LeaseHold {
            lease: self.clone(),
            key,
            waker: None,
        }
    }

    /// Done when it is revoked.
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut hold = self.hold();
        poll_fn(move |context| {
            hold.arm(context.waker());
            if hold.is_revoked() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }

    fn wakers(&self) -> MutexGuard<'_, Slab<Option<Waker>>> {
        // Nothing under the lock panics half way.
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease, if anybody still has it.
#[derive(Clone, Debug)]
pub struct WeakLease(Weak<LeaseState>);

impl WeakLease {
    /// The lease.
    #[must_use]
    pub fn upgrade(&self) -> Option<Lease> {
        self.0.upgrade().map(Lease)
    }
}

/// One stream's hold on a [`Lease`], given back when dropped.
#[derive(Debug)]
pub struct LeaseHold {
    lease: Lease,
    key: usize,
    /// The waker that is registered, so that the same one needs no lock.
    waker: Option<Waker>,
}

impl LeaseHold {
    /// Whether the permission was revoked. A caller that waits must call [`arm`](Self::arm) first.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.lease.is_revoked()
    }

    /// Wakes `waker` when the permission is revoked. Replaces an earlier one.
    pub fn arm(&mut self, waker: &Waker) {
        if self.waker.as_ref().is_some_and(|own| own.will_wake(waker)) {
            return;
        }
        self.waker = Some(waker.clone());
        let mut wakers = self.lease.wakers();
        if let Some(known) = wakers.get_mut(self.key) {
            match known {
                Some(known) => known.clone_from(waker),
                None => *known = Some(waker.clone()),
            }
        }
    }
}

impl Drop for LeaseHold {
    fn drop(&mut self) {
        let waker = self.lease.wakers().try_remove(self.key);
        // Outside the lock: what a waker owns may hold a lease itself.
        drop(waker);
    }
}

#[cfg(all(test, fanout_loom))]
mod models;
#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn revoking_wakes_each_stream_that_is_open_once() {
        let lease = Lease::new();
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let mut holds: Vec<LeaseHold> = counts.iter().map(|_| lease.hold()).collect();
        for (hold, count) in holds.iter_mut().zip(&counts) {
            hold.arm(&Waker::from(Arc::clone(count)));
            hold.arm(&Waker::from(Arc::clone(count)));
        }
        drop(holds.remove(0));
        assert!(!lease.is_revoked());
        lease.revoke();
        lease.revoke();
        assert!(holds.iter().all(LeaseHold::is_revoked));
        let woken: Vec<usize> = counts
            .iter()
            .map(|count| count.0.load(Ordering::SeqCst))
            .collect();
        assert_eq!(woken, [0, 1, 1]);
        assert_eq!(lease.stream_count(), 2);
        drop(holds);
        assert_eq!(lease.stream_count(), 0);
    }
}
