//! Loom models of the list: a watch that arms itself and then reads, and a writer that publishes and then wakes. Both fail if the
//! watch reads before it arms itself; the second one also fails if a shard is left out.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use std::task::Wake;

use super::*;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // Has an ordering, as waking a task has.
        self.0.swap(true, Ordering::AcqRel);
    }
}

/// A watch joins `others` other waiters, and waits for the first of two batches and then for the second.
fn check(others: usize) {
    loom::model(move || {
        let list = Arc::<WaiterList>::default();
        let _others: Vec<_> = (0..others).map(|spread| list.waiter(spread)).collect();
        // Relaxed: only the list may order it.
        let published = Arc::new(AtomicUsize::new(0));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let watcher = {
            let (list, published, woken) = (list.clone(), published.clone(), woken.clone());
            thread::spawn(move || {
                let waiter = list.waiter(0);
                let waker = Waker::from(woken.clone());
                let mut seen = 0;
                // One poll at the start, and one for each batch that woke it.
                for _ in 0..3 {
                    waiter.arm(&waker);
                    seen = published.load(Ordering::Relaxed);
                    if !woken.0.swap(false, Ordering::AcqRel) {
                        break;
                    }
                }
                (waiter, seen)
            })
        };
        for count in 1..=2 {
            published.store(count, Ordering::Relaxed);
            list.wake_all(&mut Vec::new());
        }
        let (_waiter, seen) = watcher.join().unwrap();
        assert!(
            seen == 2 || woken.0.load(Ordering::Acquire),
            "lost wake-up: batch {seen} seen"
        );
    });
}

#[test]
fn a_waiter_that_arms_before_it_looks_misses_nothing() {
    check(0);
}

#[test]
fn the_waiter_that_creates_the_first_shard_misses_nothing() {
    check(FEW);
}
