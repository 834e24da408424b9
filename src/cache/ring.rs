//! The broadcast ring: one writer appends, any number of readers follow at their own pace.
//!
//! A ring is a list of *segments*, each a fixed run of slots that are filled once and never changed. The writer fills a
//! slot, then moves the head past it; readers look at the head, then at the slots below it. Eviction drops whole
//! segments from a small directory that is replaced, never edited. So nobody waits: not the writer for a reader, not
//! a reader for anyone. A reader keeps nothing but a sequence number between two reads, hence a stalled one costs its
//! cursor and pins no memory; when its place is gone it is told so ([`Lagged`]).
//!
//! Why not slots that are overwritten in place: a reader would have to hold a slot against the writer, by a count
//! per slot (a write to shared memory per reader and event) or by hazard pointers. Filled-once slots need neither.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::sync::{AtomicU64, OnceSlot, Ordering, Published};

/// Our own gapless count of events; the first is 0. Never reused, not even across a relist.
pub type Sequence = u64;

/// A reader's place fell out of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring's oldest sequence is {oldest} now")]
pub struct Lagged {
    /// The oldest sequence that can still be read.
    pub oldest: Sequence,
}

/// When old segments leave. Memory decides first, then count, then age.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Slots of one segment: the grain of eviction and of growth.
    pub segment_slots: usize,
    /// At least so many events are kept, whatever their age, unless `bytes_max` forbids.
    pub events_min: usize,
    /// At most about so many events are kept (rounded up to a segment).
    pub events_max: usize,
    /// At most so many bytes of values, plus the newest segment.
    pub bytes_max: usize,
    /// Events younger than this stay while the other bounds allow.
    pub age_min: Duration,
}

/// A run of slots. Shared between the writer's list of them and the directories that readers get.
#[derive(Debug)]
struct Segment<T> {
    first: Sequence,
    slots: Arc<[OnceSlot<T>]>,
}

impl<T> Clone for Segment<T> {
    fn clone(&self) -> Self {
        Self {
            first: self.first,
            slots: Arc::clone(&self.slots),
        }
    }
}

/// The segments that can be read, oldest first, without gaps: each starts where the one before it was sealed.
#[derive(Debug)]
struct SegmentDirectory<T> {
    segments: Box<[Segment<T>]>,
    /// Start of the oldest segment, or the head while there is none.
    oldest: Sequence,
    /// No segment has more slots.
    segment_slots: u64,
}

impl<T> SegmentDirectory<T> {
    /// The segment that holds `sequence`, which is at least `oldest` and below the head.
    fn segment_of(&self, sequence: Sequence) -> usize {
        // Nearly every reader is at the head: one look instead of a search.
        let newest = self.segments.len() - 1;
        if self.segments[newest].first <= sequence {
            return newest;
        }
        // Segments that were sealed full, as nearly all are, can be counted. Others only push it back.
        let earliest = slot_index((sequence - self.oldest) / self.segment_slots);
        if sequence < self.segments[earliest + 1].first {
            return earliest;
        }
        let later = &self.segments[earliest + 1..];
        earliest + later.partition_point(|segment| segment.first <= sequence)
    }
}

/// The readers' side of a ring. On a cache line of its own, which every read needs, and nothing that others write to.
#[derive(Debug)]
pub struct Ring<T>(CachePadded<RingTop<T>>);

#[derive(Debug)]
struct RingTop<T> {
    /// One past the newest event.
    head: AtomicU64,
    directory: Published<SegmentDirectory<T>>,
}

impl<T> Ring<T> {
    /// One past the newest sequence that can be read.
    #[must_use]
    pub fn head(&self) -> Sequence {
        // Acquire: pairs with the Release in `RingWriter::append`; slots below the head are filled.
        self.0.head.load(Ordering::Acquire)
    }

    /// The oldest sequence that can be read; equals the head while the ring is empty.
    #[must_use]
    pub fn oldest(&self) -> Sequence {
        self.0.directory.with(|directory| directory.oldest)
    }

    /// Shows the values from `from` on, in order, until `visit` breaks or the head is reached.
    ///
    /// Returns the sequence to read next: one past the last value shown.
    ///
    /// # Errors
    /// [`Lagged`] when `from` was evicted; nothing is shown then.
    #[expect(
        clippy::expect_used,
        reason = "the head is published after the slot is filled; modelled under loom"
    )]
    pub fn read(
        &self,
        from: Sequence,
        mut visit: impl FnMut(Sequence, &T) -> ControlFlow<()>,
    ) -> Result<Sequence, Lagged> {
        // The head is read before the directory, so every sequence below it has its segment there, or
        // had it and was evicted.
        let head = self.head();
        if from >= head {
            return Ok(from);
        }
        self.0.directory.with(|directory| {
            if from < directory.oldest {
                return Err(Lagged {
                    oldest: directory.oldest,
                });
            }
            let mut next = from;
            let mut at = directory.segment_of(from);
            while next < head {
                let segment = &directory.segments[at];
                let end = directory
                    .segments
                    .get(at + 1)
                    .map_or(head, |after| after.first.min(head));
                let range = slot_index(next - segment.first)..slot_index(end - segment.first);
                for slot in &segment.slots[range] {
                    let flow = slot
                        .with(|value| visit(next, value.expect("slots below the head are filled")));
                    next += 1;
                    if flow.is_break() {
                        return Ok(next);
                    }
                }
                at += 1;
            }
            Ok(next)
        })
    }

    /// The first readable sequence whose value does not satisfy `before`; the head if all do.
    ///
    /// `before` must hold for a prefix of the values and for none after it.
    #[expect(
        clippy::expect_used,
        reason = "the head is published after the slot is filled; modelled under loom"
    )]
    pub fn partition_point(&self, mut before: impl FnMut(&T) -> bool) -> Sequence {
        let head = self.head();
        self.0.directory.with(|directory| {
            let (mut low, mut high) = (directory.oldest.min(head), head);
            while low < high {
                let middle = low + (high - low) / 2;
                let segment = &directory.segments[directory.segment_of(middle)];
                let slot = &segment.slots[slot_index(middle - segment.first)];
                if slot.with(|value| before(value.expect("slots below the head are filled"))) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        })
    }
}

#[expect(clippy::expect_used, reason = "an index into memory that exists")]
fn slot_index(offset: u64) -> usize {
    usize::try_from(offset).expect("a segment's slots fit in memory")
}

/// A segment, and what the writer knows of it beyond what readers need.
#[derive(Debug)]
struct SegmentRecord<T> {
    segment: Segment<T>,
    events: usize,
    bytes: usize,
    newest_at: Instant,
}

/// The only writer of a ring. Not `Clone`.
#[derive(Debug)]
pub struct RingWriter<T> {
    ring: Arc<Ring<T>>,
    retention: Retention,
    /// Oldest first. Readers get copies of the segments; kept here so that the writer needs not read them back.
    kept: VecDeque<SegmentRecord<T>>,
    head: Sequence,
    events: usize,
    bytes: usize,
}

impl<T> RingWriter<T> {
    /// An empty ring. Slots are allocated with the first event.
    #[must_use]
    pub fn new(retention: Retention) -> Self {
        assert!(
            retention.segment_slots > 0,
            "a segment holds at least one event"
        );
        let directory = SegmentDirectory {
            segments: Box::default(),
            oldest: 0,
            segment_slots: retention.segment_slots as u64,
        };
        let top = RingTop {
            head: AtomicU64::new(0),
            directory: Published::new(Arc::new(directory)),
        };
        Self {
            ring: Arc::new(Ring(CachePadded::new(top))),
            retention,
            kept: VecDeque::new(),
            head: 0,
            events: 0,
            bytes: 0,
        }
    }

    /// The readers' side.
    #[must_use]
    pub fn ring(&self) -> &Arc<Ring<T>> {
        &self.ring
    }

    /// Events that can be read.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events
    }

    /// Bytes of the values that can be read, as given to [`RingWriter::append`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends one value of `len` bytes; evicts what the bounds no longer allow. Returns its sequence.
    pub fn append(&mut self, value: T, len: usize, now: Instant) -> Sequence {
        if self.tail_is_sealed() {
            self.open_segment(now);
        }
        let sequence = self.head;
        let Some(tail) = self.kept.back_mut() else {
            unreachable!("a segment was opened above");
        };
        tail.segment.slots[slot_index(sequence - tail.segment.first)].fill(value);
        tail.events += 1;
        tail.bytes += len;
        tail.newest_at = now;
        self.events += 1;
        self.bytes += len;
        self.head += 1;
        // Release: pairs with the Acquire in `Ring::head`; publishes the slot filled above and the
        // directory that leads to it.
        self.ring.0.head.store(self.head, Ordering::Release);
        if self.bytes > self.retention.bytes_max && self.evict(now) {
            self.publish_directory();
        }
        sequence
    }

    /// Evicts what is old enough to go; for a tick while no events arrive.
    pub fn expire(&mut self, now: Instant) {
        if self.evict(now) {
            self.publish_directory();
        }
    }

    /// The same, and the newest segment too when everything in it is old. For a ring whose readers have somewhere else to
    /// look: one that is only behind by a value that came long ago is told that it lagged.
    pub fn expire_all(&mut self, now: Instant) {
        let mut is_less = self.evict(now);
        let is_old = |only: &SegmentRecord<T>| {
            now.saturating_duration_since(only.newest_at) > self.retention.age_min
        };
        if self.retention.events_min == 0 && self.kept.len() == 1 && self.kept.iter().all(is_old) {
            (self.events, self.bytes) = (0, 0);
            self.kept.clear();
            is_less = true;
        }
        if is_less {
            self.publish_directory();
        }
    }

    /// The moment of the newest event in the oldest segment: the next to be evicted by age.
    #[must_use]
    pub fn oldest_at(&self) -> Option<Instant> {
        self.kept.front().map(|oldest| oldest.newest_at)
    }

    /// Full, or so heavy that evicting it whole would be too coarse.
    fn tail_is_sealed(&self) -> bool {
        self.kept.back().is_none_or(|tail| {
            tail.events == self.retention.segment_slots || tail.bytes > self.retention.bytes_max / 8
        })
    }

    fn open_segment(&mut self, now: Instant) {
        self.evict(now);
        let slots = (0..self.retention.segment_slots)
            .map(|_| OnceSlot::empty())
            .collect();
        let first = self.head;
        self.kept.push_back(SegmentRecord {
            segment: Segment { first, slots },
            events: 0,
            bytes: 0,
            newest_at: now,
        });
        self.publish_directory();
    }

    /// Drops the oldest segments while a bound says so; the newest one always stays. True if any left.
    fn evict(&mut self, now: Instant) -> bool {
        let before = self.kept.len();
        while self.kept.len() > 1 && self.oldest_may_go(now) {
            let Some(gone) = self.kept.pop_front() else {
                break;
            };
            self.events -= gone.events;
            self.bytes -= gone.bytes;
        }
        self.kept.len() < before
    }

    fn oldest_may_go(&self, now: Instant) -> bool {
        let Some(oldest) = self.kept.front() else {
            return false;
        };
        let old = now.saturating_duration_since(oldest.newest_at) > self.retention.age_min;
        self.bytes > self.retention.bytes_max
            || self.events > self.retention.events_max
            || (old && self.events - oldest.events >= self.retention.events_min)
    }

    fn publish_directory(&self) {
        let segments: Box<[_]> = self.kept.iter().map(|kept| kept.segment.clone()).collect();
        self.ring.0.directory.publish(Arc::new(SegmentDirectory {
            oldest: segments.first().map_or(self.head, |oldest| oldest.first),
            segments,
            segment_slots: self.retention.segment_slots as u64,
        }));
    }
}

#[cfg(test)]
mod tests;

#[cfg(all(test, fanout_loom))]
mod models;
