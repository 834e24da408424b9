//! Loom models of a permission that is revoked while a stream arms itself: the stream sees it, or is woken. Fails when streams are
//! woken before the permission counts as revoked (planted defect 37), and when a stream looks before it arms itself.

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

/// A stream that waits: it arms itself, then looks. `again` lets it do so twice, as another task the second time.
fn check(again: bool) {
    loom::model(move || {
        let lease = Lease::new();
        let mut hold = lease.hold();
        let revoking = lease.clone();
        let revoker = thread::spawn(move || revoking.revoke());
        let mut wakes = Arc::new(Wakes::default());
        hold.arm(&Waker::from(Arc::clone(&wakes)));
        let mut sees_it = hold.is_revoked();
        if again && !sees_it {
            wakes = Arc::default();
            hold.arm(&Waker::from(Arc::clone(&wakes)));
            sees_it = hold.is_revoked();
        }
        revoker.join().expect("it revokes");
        let wakes = wakes.0.load(Ordering::Relaxed);
        assert!(sees_it || wakes > 0, "it waits, and nobody wakes it");
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
