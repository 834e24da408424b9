//! Loom models of the list: watchers who arm themselves and then look, beside a writer who publishes and then wakes. Both fail when
//! the watcher looks before it arms itself, the second when a shard is left out.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use std::task::Wake;

use super::*;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // Ordered, as waking a task is.
        self.0.swap(true, Ordering::AcqRel);
    }
}

/// A watcher joins, beside `seated` others, waits for the first of two batches, and then for the second.
fn check(seated: usize) {
    loom::model(move || {
        let list = Arc::<WaiterList>::default();
        let _seated: Vec<_> = (0..seated).map(|spread| list.waiter(spread)).collect();
        // Relaxed: the list alone must order it.
        let published = Arc::new(AtomicUsize::new(0));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let watcher = {
            let (list, published, woken) = (list.clone(), published.clone(), woken.clone());
            thread::spawn(move || {
                let seat = list.waiter(0);
                let waker = Waker::from(woken.clone());
                let mut seen = 0;
                // Polled once when it begins, and once for each batch that woke it.
                for _ in 0..3 {
                    seat.arm(&waker);
                    seen = published.load(Ordering::Relaxed);
                    if !woken.0.swap(false, Ordering::AcqRel) {
                        break;
                    }
                }
                (seat, seen)
            })
        };
        for count in 1..=2 {
            published.store(count, Ordering::Relaxed);
            list.wake_all(&mut Vec::new());
        }
        let (_seat, seen) = watcher.join().unwrap();
        assert!(
            seen == 2 || woken.0.load(Ordering::Acquire),
            "seen {seen}, and nobody wakes"
        );
    });
}

#[test]
fn whoever_arms_and_then_looks_misses_nothing() {
    check(0);
}

#[test]
fn whoever_makes_the_first_shard_misses_nothing() {
    check(FEW);
}
