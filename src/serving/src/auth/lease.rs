//! Leases: the permission of open streams, which may be revoked while they are open. A stream holds a lease, checks it before it
//! continues, and is woken when it is revoked. `lease/models.rs` checks the wake-up with loom.

use std::future::{Future, poll_fn};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicBool, Ordering};

use slab::Slab;

use crate::sync::{Mutex, MutexGuard};

/// The permission of all streams with the same access, caller and credential. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Lease(Arc<LeaseState>);

#[derive(Debug, Default)]
struct LeaseState {
    revoked: AtomicBool,
    /// One entry for each open stream: the waker that it armed, until the lease is revoked.
    wakers: Mutex<Slab<Option<Waker>>>,
}

impl Lease {
    /// A new lease, not revoked.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Revokes the lease, and wakes the streams that hold it.
    pub fn revoke(&self) {
        // Revoked before streams are woken: a stream that arms its waker after that sees the revocation. Release pairs with the Acquire in
        // `is_revoked`.
        self.0.revoked.store(true, Ordering::Release);
        let wakers: Vec<Waker> = self
            .wakers()
            .iter_mut()
            .filter_map(|(_, waker)| waker.take())
            .collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether the lease has been revoked.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.0.revoked.load(Ordering::Acquire)
    }

    /// A weak reference to this lease.
    #[must_use]
    pub fn downgrade(&self) -> WeakLease {
        WeakLease(Arc::downgrade(&self.0))
    }

    /// Number of streams that hold the lease.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.wakers().len()
    }

    /// Registers a stream, which keeps the returned hold while it is open.
    #[must_use]
    pub fn hold(&self) -> LeaseHold {
        let key = self.wakers().insert(None);
        LeaseHold {
            lease: self.clone(),
            key,
            waker: None,
        }
    }

    /// Completes when the lease is revoked. Counts as a stream until it is dropped.
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
        self.0.wakers.lock()
    }
}

/// A weak reference to a [`Lease`].
#[derive(Clone, Debug)]
pub struct WeakLease(Weak<LeaseState>);

impl WeakLease {
    /// The lease; `None` if nothing else references it any more.
    #[must_use]
    pub fn upgrade(&self) -> Option<Lease> {
        self.0.upgrade().map(Lease)
    }
}

/// One stream's hold on a [`Lease`]. Dropping it unregisters the stream.
#[derive(Debug)]
pub struct LeaseHold {
    lease: Lease,
    key: usize,
    /// A copy of the registered waker, so that arming with the same waker needs no lock.
    waker: Option<Waker>,
}

impl LeaseHold {
    /// Whether the lease has been revoked. Before waiting, call [`arm`](Self::arm) and then this; in the other order a revocation in
    /// between is missed.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.lease.is_revoked()
    }

    /// Registers `waker`, which is woken when the lease is revoked, in place of the previous one.
    pub fn arm(&mut self, waker: &Waker) {
        if self.waker.as_ref().is_some_and(|own| own.will_wake(waker)) {
            return;
        }
        self.waker = Some(waker.clone());
        let registered = waker.clone();
        let previous = self
            .lease
            .wakers()
            .get_mut(self.key)
            .and_then(|slot| slot.replace(registered));
        // Dropped outside the lock, because a waker may own a hold on the same lease.
        drop(previous);
    }
}

impl Drop for LeaseHold {
    fn drop(&mut self) {
        let waker = self.lease.wakers().try_remove(self.key);
        // Outside the lock, for the same reason as in `arm`.
        drop(waker);
    }
}

#[cfg(all(test, feature = "loom"))]
mod models;
#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn revoking_wakes_each_open_stream_once() {
        let lease = Lease::new();
        let counts: Vec<Arc<WakeCount>> = (0..3).map(|_| Arc::default()).collect();
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
