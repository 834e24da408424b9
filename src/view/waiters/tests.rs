//! Watchers beyond the first few.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

/// Counts how often it is woken.
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
fn all_who_are_armed_are_woken_however_many_they_are() {
    let list = Arc::<WaiterList>::default();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut seats = Vec::new();
    for number in 0..4 * FEW {
        seats.push(list.waiter(number));
        assert_eq!(list.many.get().is_some(), seats.len() > FEW);
    }
    for seat in &seats {
        seat.arm_for(&waker, 3);
        seat.arm_for(&waker, 2);
    }
    let mut scratch = Vec::new();
    assert_eq!(list.wake_all(&mut scratch), 2 * seats.len());
    assert_eq!(wakes.count(), seats.len());
    assert_eq!(list.wake_all(&mut scratch), 0, "each once");
    // Who has left is not woken, and leaves its place to others.
    seats.iter().for_each(|seat| seat.arm(&waker));
    seats.truncate(FEW + 1);
    assert_eq!(list.wake_all(&mut scratch), FEW + 1);
    assert_eq!(wakes.count(), 4 * FEW + FEW + 1);
}
