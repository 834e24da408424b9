//! Waiter lists with more than the first few waiters.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

/// A waker that counts its wake-ups.
#[derive(Default)]
pub(in crate::view) struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    pub(in crate::view) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn all_armed_waiters_are_woken() {
    let list = Arc::<WaiterList>::default();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut waiters = Vec::new();
    for number in 0..4 * FEW {
        waiters.push(list.waiter(number));
        assert_eq!(list.many.get().is_some(), waiters.len() > FEW);
    }
    for waiter in &waiters {
        waiter.arm_for(&waker, 3);
        waiter.arm_for(&waker, 2);
    }
    let mut scratch = Vec::new();
    assert_eq!(list.wake_all(&mut scratch), 2 * waiters.len());
    assert_eq!(wakes.count(), waiters.len());
    assert_eq!(list.wake_all(&mut scratch), 0, "each waiter is woken once");
    // A dropped waiter is not woken, and its slot is free again.
    waiters.iter().for_each(|waiter| waiter.arm(&waker));
    waiters.truncate(FEW + 1);
    assert_eq!(list.wake_all(&mut scratch), FEW + 1);
    assert_eq!(wakes.count(), 4 * FEW + FEW + 1);
}
