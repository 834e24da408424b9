//! Ways to pass shared values from one writer to many readers: the ring, and the channels that it is compared with.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use kube_fanout::cache::{Retention, Ring, RingWriter, Sequence};
use tokio::sync::broadcast;

/// Values kept. A power of two, because `broadcast` rounds up to one.
pub(crate) const CAPACITY: usize = 1 << 16;

/// Represents an event: readers look at the shared value, not only at the slot.
#[derive(Debug)]
pub(crate) struct Payload {
    number: u64,
    /// Padding up to the size of an event.
    _rest: [u64; 15],
}

impl Payload {
    pub(crate) fn new(number: u64) -> Arc<Self> {
        Arc::new(Self {
            number,
            _rest: [0; 15],
        })
    }
}

/// The result of one read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadCount {
    pub(crate) count: u64,
    /// Sum of the values' numbers: the compiler cannot skip reading them.
    _sum: u64,
}

impl ReadCount {
    fn add(&mut self, value: &Payload) {
        self.add_number(value.number);
    }

    fn add_number(&mut self, number: u64) {
        self.count += 1;
        self._sum = self._sum.wrapping_add(number);
    }
}

/// A channel with one writer and many cursors.
pub(crate) trait Channel {
    type Cursor: Cursor;

    fn new() -> Self;
    fn append(&mut self, value: Arc<Payload>, now: Instant);
    /// A cursor that sees the values appended from now on.
    fn cursor(&self) -> Self::Cursor;
}

/// A reader's position.
pub(crate) trait Cursor: Send {
    /// Reads the available values, at most `most`. A cursor that lagged continues with the oldest value.
    fn take(&mut self, most: usize) -> ReadCount;
}

/// The ring; readers borrow the values in place.
pub(crate) struct Borrowed(RingWriter<Arc<Payload>>);

pub(crate) struct RingCursor {
    ring: Arc<Ring<Arc<Payload>>>,
    next: Sequence,
}

impl Channel for Borrowed {
    type Cursor = RingCursor;

    fn new() -> Self {
        Self(RingWriter::new(Retention {
            segment_slots: 1_024,
            events_min: 0,
            events_max: CAPACITY,
            bytes_max: usize::MAX,
            age_max: Duration::MAX,
        }))
    }

    fn append(&mut self, value: Arc<Payload>, now: Instant) {
        self.0.append(value, size_of::<Payload>(), now);
    }

    fn cursor(&self) -> RingCursor {
        let ring = Arc::clone(self.0.ring());
        let next = ring.head();
        RingCursor { ring, next }
    }
}

impl RingCursor {
    fn take_with(&mut self, most: usize, mut visit: impl FnMut(&Arc<Payload>)) {
        let mut left = most;
        let read = self.ring.read(self.next, |_, value| {
            visit(value);
            left -= 1;
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        self.next = read.unwrap_or_else(|lagged| lagged.oldest);
    }
}

impl Cursor for RingCursor {
    fn take(&mut self, most: usize) -> ReadCount {
        let mut read = ReadCount::default();
        self.take_with(most, |value| read.add(value));
        read
    }
}

/// The ring; readers clone each value's `Arc`, as the other channels require.
pub(crate) struct Cloned(Borrowed);

pub(crate) struct CloningCursor(RingCursor);

impl Channel for Cloned {
    type Cursor = CloningCursor;

    fn new() -> Self {
        Self(Borrowed::new())
    }

    fn append(&mut self, value: Arc<Payload>, now: Instant) {
        self.0.append(value, now);
    }

    fn cursor(&self) -> CloningCursor {
        CloningCursor(self.0.cursor())
    }
}

impl Cursor for CloningCursor {
    fn take(&mut self, most: usize) -> ReadCount {
        let mut read = ReadCount::default();
        self.0.take_with(most, |value| read.add(&Arc::clone(value)));
        read
    }
}

/// `tokio::sync::broadcast`.
pub(crate) struct TokioBroadcast(broadcast::Sender<Arc<Payload>>);

impl Channel for TokioBroadcast {
    type Cursor = broadcast::Receiver<Arc<Payload>>;

    fn new() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }

    fn append(&mut self, value: Arc<Payload>, _: Instant) {
        // Sending without receivers fails, which is fine.
        let _ = self.0.send(value);
    }

    fn cursor(&self) -> Self::Cursor {
        self.0.subscribe()
    }
}

impl Cursor for broadcast::Receiver<Arc<Payload>> {
    fn take(&mut self, most: usize) -> ReadCount {
        let mut read = ReadCount::default();
        for _ in 0..most {
            match self.try_recv() {
                Ok(value) => read.add(&value),
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        read
    }
}

/// Not a channel but the lower limit of one: numbers in an array that is overwritten in place. Nothing is allocated, shared or freed, and
/// a reader that is overtaken reads other values.
pub(crate) struct Words(Arc<Overwritten>);

#[derive(Debug)]
pub(crate) struct Overwritten {
    head: CachePadded<AtomicU64>,
    slots: Box<[AtomicU64]>,
}

pub(crate) struct WordCursor {
    shared: Arc<Overwritten>,
    next: u64,
}

fn slot_of(sequence: u64) -> usize {
    usize::try_from(sequence).unwrap_or(usize::MAX) % CAPACITY
}

impl Channel for Words {
    type Cursor = WordCursor;

    fn new() -> Self {
        Self(Arc::new(Overwritten {
            head: CachePadded::default(),
            slots: (0..CAPACITY).map(|_| AtomicU64::new(0)).collect(),
        }))
    }

    fn append(&mut self, value: Arc<Payload>, _: Instant) {
        // Relaxed: only this thread writes. Release: pairs with the Acquire in `take`.
        let head = self.0.head.load(Ordering::Relaxed);
        self.0.slots[slot_of(head)].store(value.number, Ordering::Relaxed);
        self.0.head.store(head + 1, Ordering::Release);
    }

    fn cursor(&self) -> WordCursor {
        WordCursor {
            shared: Arc::clone(&self.0),
            // Acquire: see `take`.
            next: self.0.head.load(Ordering::Acquire),
        }
    }
}

impl Cursor for WordCursor {
    fn take(&mut self, most: usize) -> ReadCount {
        // Acquire: pairs with the Release in `append`, so the slots below the head are written.
        let head = self.shared.head.load(Ordering::Acquire);
        let end = head.min(self.next + most as u64);
        let mut read = ReadCount::default();
        while self.next < end {
            // Relaxed: the head was loaded with Acquire before.
            read.add_number(self.shared.slots[slot_of(self.next)].load(Ordering::Relaxed));
            self.next += 1;
        }
        read
    }
}

/// A queue behind one lock, which a reader holds while it looks at the values.
pub(crate) struct Locked(Arc<Mutex<Numbered>>);

#[derive(Default)]
pub(crate) struct Numbered {
    first: u64,
    values: VecDeque<Arc<Payload>>,
}

pub(crate) struct LockedCursor {
    shared: Arc<Mutex<Numbered>>,
    next: u64,
}

fn locked(shared: &Mutex<Numbered>) -> MutexGuard<'_, Numbered> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel for Locked {
    type Cursor = LockedCursor;

    fn new() -> Self {
        Self(Arc::default())
    }

    fn append(&mut self, value: Arc<Payload>, _: Instant) {
        let mut queue = locked(&self.0);
        if queue.values.len() == CAPACITY {
            queue.values.pop_front();
            queue.first += 1;
        }
        queue.values.push_back(value);
    }

    fn cursor(&self) -> LockedCursor {
        let queue = locked(&self.0);
        LockedCursor {
            shared: Arc::clone(&self.0),
            next: queue.first + queue.values.len() as u64,
        }
    }
}

impl Cursor for LockedCursor {
    fn take(&mut self, most: usize) -> ReadCount {
        let queue = locked(&self.shared);
        let mut read = ReadCount::default();
        self.next = self.next.max(queue.first);
        let skip = usize::try_from(self.next - queue.first).unwrap_or(usize::MAX);
        queue
            .values
            .range(skip.min(queue.values.len())..)
            .take(most)
            .for_each(|value| read.add(value));
        self.next += read.count;
        read
    }
}
