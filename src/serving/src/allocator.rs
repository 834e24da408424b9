//! An allocator that counts the bytes which the program holds, so that the metrics can tell memory in use from memory that another allocator
//! keeps for later (decision 50).
//!
//! Each thread adds up its own changes and passes them on when they are large enough: nothing that threads share is written for most
//! allocations.

#![expect(
    unsafe_code,
    reason = "an allocator cannot be wrapped without; each call is passed on as it is"
)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

use crate::resource::allocated_len;

/// A thread passes its changes on when they add up to this many bytes: rarely, and together they are wrong by less than this for
/// each thread.
const PENDING_MAX: usize = 64 << 10;

/// All changes that threads have passed on. A thread may free what another one has allocated and not yet passed on, so this may be negative.
static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static PENDING: PendingCount = const { PendingCount(Cell::new(0)) };
}

/// Bytes that this thread has allocated, less those that it has freed, since it last passed them on.
struct PendingCount(Cell<isize>);

impl PendingCount {
    #[inline]
    fn add(&self, change: isize) {
        let pending = self.0.get().wrapping_add(change);
        if pending.unsigned_abs() < PENDING_MAX {
            self.0.set(pending);
        } else {
            self.0.set(0);
            pass_on(pending);
        }
    }
}

impl Drop for PendingCount {
    fn drop(&mut self) {
        pass_on(self.0.get());
    }
}

fn pass_on(change: isize) {
    // Relaxed: a reader needs a recent sum, and nothing else depends on it.
    ALLOCATED.fetch_add(change, Ordering::Relaxed);
}

#[inline]
fn count(change: isize) {
    // When the thread ends, its other thread-local values may be freed after its count has been passed on.
    if PENDING.try_with(|pending| pending.add(change)).is_err() {
        pass_on(change);
    }
}

/// What an allocation of `len` bytes counts.
#[inline]
const fn weight(len: usize) -> isize {
    allocated_len(len).cast_signed()
}

/// Bytes that are allocated, rounded up to the allocator's sizes; 0 if the program's allocator does not count.
#[must_use]
pub fn allocated() -> usize {
    // Relaxed: as in `pass_on`.
    usize::try_from(ALLOCATED.load(Ordering::Relaxed)).unwrap_or_default()
}

/// Counts what is allocated from another allocator. To be used as the global allocator: the count is that of the process.
#[derive(Debug)]
pub struct CountingAllocator<A>(pub A);

// SAFETY: each call is passed on unchanged, and its result returned; counting neither allocates from this allocator nor panics.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the inner allocator asks for.
        let block = unsafe { self.0.alloc(layout) };
        if !block.is_null() {
            count(weight(layout.size()));
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { self.0.dealloc(block, layout) };
        count(-weight(layout.size()));
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        if !block.is_null() {
            count(weight(layout.size()));
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let moved = unsafe { self.0.realloc(block, layout, len) };
        if !moved.is_null() {
            count(weight(len) - weight(layout.size()));
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREADS: usize = 8;

    /// Counts a change up to 35 times in each of several threads, until they have ended.
    fn count_in_threads(change: isize) {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| std::thread::spawn(move || (0..number * 5).for_each(|_| count(change))))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn what_threads_allocate_and_others_free_is_counted_exactly_once_they_have_ended() {
        let blocks = (0..THREADS).map(|number| number * 5).sum::<usize>();
        for len in [100, 1_000, PENDING_MAX + 1] {
            let before = allocated();
            count_in_threads(weight(len));
            assert_eq!(allocated() - before, blocks * allocated_len(len));
            count_in_threads(-weight(len));
            assert_eq!(allocated(), before);
        }
    }
}
