//! Loom models of a lease that is revoked while a stream arms its waker: the stream sees the revocation, or is woken. They fail if
//! streams are woken before the lease is marked as revoked (planted defect 37), and if a stream checks before it arms its waker.

use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use loom::thread;

use super::*;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream that is about to wait: it arms its waker, then checks the lease. With `again` it does so twice, the second time with the
/// waker of another task.
fn check(again: bool) {
    loom::model(move || {
        let lease = Lease::new();
        let mut hold = lease.hold();
        let revoked_lease = lease.clone();
        let revoker = thread::spawn(move || revoked_lease.revoke());
        let mut wakes = Arc::new(Wakes::default());
        hold.arm(&Waker::from(Arc::clone(&wakes)));
        let mut sees_it = hold.is_revoked();
        if again && !sees_it {
            wakes = Arc::default();
            hold.arm(&Waker::from(Arc::clone(&wakes)));
            sees_it = hold.is_revoked();
        }
        revoker.join().expect("the revoking thread does not panic");
        let wakes = wakes.0.load(Ordering::Relaxed);
        assert!(sees_it || wakes > 0, "the stream waits and is not woken");
    });
}

#[test]
fn a_stream_that_arms_itself_and_looks_misses_no_revocation() {
    check(false);
}

#[test]
fn a_stream_that_moves_to_another_task_misses_no_revocation() {
    check(true);
}
