//! Loom models of the list: watchers who arm themselves and then look, beside a writer who publishes and then wakes.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use std::task::Wake;

use super::*;

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A watcher joins, beside `seated` others, waits for the first of two batches, and then for the second.
fn check(seated: usize) {
    loom::model(move || {
        let list = Arc::<WakeList>::default();
        let _seated: Vec<_> = (0..seated).map(|spread| list.seat(spread)).collect();
        // Relaxed: the list alone must order it.
        let published = Arc::new(AtomicUsize::new(0));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let watcher = {
            let (list, published, woken) = (list.clone(), published.clone(), woken.clone());
            thread::spawn(move || {
                let seat = list.seat(0);
                let waker = Waker::from(woken.clone());
                let mut seen = 0;
                // Polled once when it begins, and once when it was woken meanwhile.
                for _ in 0..2 {
                    seat.arm(&waker);
                    seen = published.load(Ordering::Relaxed);
                    if !woken.0.swap(false, Ordering::Relaxed) {
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
            seen == 2 || woken.0.load(Ordering::Relaxed),
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
