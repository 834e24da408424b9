//! The broadcast ring: one writer appends, and any number of readers read, each at its own pace.
//!
//! A ring is a list of *segments*, each with a fixed number of slots. A slot is filled once and never changed. The writer
//! fills a slot and then moves the head past it; a reader loads the head and then reads the slots below it. Eviction drops
//! whole segments: the writer publishes a new directory of segments, and never edits a published one. Therefore the writer
//! never waits for a reader, and a reader never waits for anything. Between two reads a reader keeps only a sequence
//! number, so a stalled reader costs its cursor and pins no memory. If its position was evicted, its next read returns
//! [`Lagged`].
//!
//! Slots are not overwritten in place, because a reader would then have to protect the slot that it reads from the writer:
//! by a count per slot, which is a write to shared memory per reader and event, or by hazard pointers. A slot that is
//! filled once needs neither.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::sync::{AtomicU64, OnceSlot, Ordering, Published};

/// The gateway's gapless count of events, starting at 0. A sequence is never reused, not even across a relist.
pub type Sequence = u64;

/// The error of a reader whose position was evicted from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the position was evicted: the ring's oldest sequence is {oldest}")]
pub struct Lagged {
    /// The oldest sequence that can still be read.
    pub oldest: Sequence,
}

/// The bounds of a ring, which decide when segments are evicted.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Slots of one segment. The ring grows by whole segments and evicts whole segments.
    pub segment_slots: usize,
    /// Age evicts no event if fewer than this many would be left.
    pub events_min: usize,
    /// Maximum number of events, rounded up to a whole segment.
    pub events_max: usize,
    /// Maximum bytes of values. The newest segment is kept even if it has more.
    pub bytes_max: usize,
    /// Events older than this are evicted; none is with [`Duration::MAX`].
    pub age_max: Duration,
}

/// Values younger than this are recent: see [`RingWriter::bound_bytes`].
const RECENT_AGE: Duration = Duration::from_secs(15);

/// A run of slots, shared by the writer's records and the published directories.
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

/// The readable segments, oldest first. There are no gaps: each segment starts where the one before it was sealed.
#[derive(Debug)]
struct SegmentDirectory<T> {
    segments: Box<[Segment<T>]>,
    /// Start of the oldest segment; the head if there is no segment.
    oldest: Sequence,
    /// Slots of one segment, as in [`Retention::segment_slots`].
    segment_slots: u64,
}

impl<T> SegmentDirectory<T> {
    /// The index of the segment that holds `sequence`, which must be at least `oldest` and below the head.
    fn segment_of(&self, sequence: Sequence) -> usize {
        // Fast path: nearly every reader is at the head.
        let newest = self.segments.len() - 1;
        if self.segments[newest].first <= sequence {
            return newest;
        }
        // If all segments were sealed full, as nearly all are, this is the index. A segment that was sealed early can only move
        // `sequence` to a later one.
        let earliest = slot_index((sequence - self.oldest) / self.segment_slots);
        if sequence < self.segments[earliest + 1].first {
            return earliest;
        }
        let later = &self.segments[earliest + 1..];
        earliest + later.partition_point(|segment| segment.first <= sequence)
    }
}

/// The readers' side of a ring. Every read needs it, so it is padded to its own cache line, which no writes to other data invalidate.
#[derive(Debug)]
pub struct Ring<T>(CachePadded<RingTop<T>>);

#[derive(Debug)]
struct RingTop<T> {
    /// One past the newest sequence that can be read.
    head: AtomicU64,
    directory: Published<SegmentDirectory<T>>,
}

impl<T> Ring<T> {
    /// One past the newest sequence that can be read.
    #[must_use]
    pub fn head(&self) -> Sequence {
        // Acquire: pairs with the Release in `RingWriter::append`, so the slots below this head are filled.
        self.0.head.load(Ordering::Acquire)
    }

    /// The oldest sequence that can be read; equals the head while the ring is empty.
    #[must_use]
    pub fn oldest(&self) -> Sequence {
        self.0.directory.with(|directory| directory.oldest)
    }

    /// Visits the values from `from` on, in order, until `visit` breaks or the head is reached.
    ///
    /// Returns the sequence to read next: one past the last value visited.
    ///
    /// # Errors
    /// [`Lagged`] if `from` was evicted; then no value is visited.
    #[expect(
        clippy::expect_used,
        reason = "the head is published after the slot is filled; modelled under loom"
    )]
    pub fn read(
        &self,
        from: Sequence,
        mut visit: impl FnMut(Sequence, &T) -> ControlFlow<()>,
    ) -> Result<Sequence, Lagged> {
        // Load the head before the directory. The writer publishes the directory with a new segment before it moves the head into
        // that segment. The directory loaded here therefore has a segment for every sequence below `head`, except for those that
        // were evicted since.
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

    /// The first readable sequence whose value does not satisfy `before`; the head if all values do.
    ///
    /// `before` must hold for a prefix of the values and for none after it.
    #[expect(
        clippy::expect_used,
        reason = "the head is published after the slot is filled; modelled under loom"
    )]
    pub fn partition_point(&self, mut before: impl FnMut(&T) -> bool) -> Sequence {
        // The head before the directory, as in `read`. An eviction in between can raise `oldest` above this head.
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

#[expect(
    clippy::expect_used,
    reason = "the offset indexes an existing slot or segment"
)]
fn slot_index(offset: u64) -> usize {
    usize::try_from(offset).expect("a segment's slots fit in memory")
}

/// A segment with the sizes and the age that only the writer needs.
#[derive(Debug)]
struct SegmentRecord<T> {
    segment: Segment<T>,
    events: usize,
    bytes: usize,
    first_at: Instant,
    newest_at: Instant,
}

/// The only writer of a ring. Not `Clone`.
#[derive(Debug)]
pub struct RingWriter<T> {
    ring: Arc<Ring<T>>,
    retention: Retention,
    /// Maximum bytes of values as long as the oldest are not recent; at most the retention's.
    lean_max: usize,
    /// All segments, oldest first. The directories have copies of them; the writer never loads a directory.
    segments: VecDeque<SegmentRecord<T>>,
    head: Sequence,
    events: usize,
    bytes: usize,
}

impl<T> RingWriter<T> {
    /// An empty ring. Slots are allocated when they are needed, the first ones with the first event.
    #[must_use]
    pub fn new(retention: Retention) -> Self {
        assert!(
            retention.segment_slots > 0,
            "segment_slots must be at least 1"
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
            lean_max: retention.bytes_max,
            segments: VecDeque::new(),
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

    /// Number of events that can be read.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events
    }

    /// Bytes of the values that can be read: the sum of the `len` given to [`RingWriter::append`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends one value of `len` bytes, evicts what exceeds the bounds, and returns the value's sequence.
    pub fn append(&mut self, value: T, len: usize, now: Instant) -> Sequence {
        if self.tail_is_sealed() {
            self.open_segment(now);
        }
        let sequence = self.head;
        let Some(tail) = self.segments.back_mut() else {
            unreachable!("a segment was opened above");
        };
        tail.segment.slots[slot_index(sequence - tail.segment.first)].fill(value);
        tail.events += 1;
        tail.bytes += len;
        tail.newest_at = now;
        self.events += 1;
        self.bytes += len;
        self.head += 1;
        // Release: pairs with the Acquire in `Ring::head`. It publishes the slot filled above, and the directory with
        // the slot's segment.
        self.ring.0.head.store(self.head, Ordering::Release);
        if self.bytes > self.lean_max && self.evict(now) {
            self.publish_directory();
        }
        sequence
    }

    /// Evicts segments that have become too old. Call it from time to time while no events arrive.
    pub fn expire(&mut self, now: Instant) {
        if self.evict(now) {
            self.publish_directory();
        }
    }

    /// Changes the maximum bytes of values, and evicts what exceeds it.
    pub fn set_bytes_max(&mut self, bytes_max: usize, now: Instant) {
        self.bound_bytes(bytes_max, bytes_max, now);
    }

    /// Changes the maximum age of values; the next call that evicts follows it.
    pub fn set_age_max(&mut self, age_max: Duration) {
        self.retention.age_max = age_max;
    }

    /// Like [`RingWriter::set_bytes_max`], but recent values, up to 15 seconds old, stay while all values together have at most `recent_max`
    /// bytes.
    pub fn bound_bytes(&mut self, bytes_max: usize, recent_max: usize, now: Instant) {
        self.lean_max = bytes_max;
        self.retention.bytes_max = bytes_max.max(recent_max);
        self.expire(now);
    }

    /// Like [`RingWriter::expire`], but also evicts the newest segment if all its values are old. For a ring whose readers have another
    /// source to read from: a reader that is behind only by an old value gets [`Lagged`].
    pub fn expire_all(&mut self, now: Instant) {
        let mut has_evicted = self.evict(now);
        if self.retention.events_min == 0
            && self.segments.len() == 1
            && self.segments.iter().all(|record| {
                now.saturating_duration_since(record.newest_at) > self.retention.age_max
            })
        {
            (self.events, self.bytes) = (0, 0);
            self.segments.clear();
            has_evicted = true;
        }
        if has_evicted {
            self.publish_directory();
        }
    }

    /// When the oldest value was appended.
    #[must_use]
    pub fn oldest_at(&self) -> Option<Instant> {
        self.segments.front().map(|oldest| oldest.first_at)
    }

    /// When the newest value of the oldest segment was appended, if age may evict that segment; `None` if it stays however old it is.
    #[must_use]
    pub fn evictable_since(&self) -> Option<Instant> {
        let oldest = self.segments.front()?;
        let stays = self.segments.len() == 1 || !self.has_enough_without(oldest);
        (!stays).then_some(oldest.newest_at)
    }

    fn has_enough_without(&self, oldest: &SegmentRecord<T>) -> bool {
        self.events - oldest.events >= self.retention.events_min
    }

    /// Whether the newest segment takes no more values: it is full, or so large that evicting it whole would drop too much.
    fn tail_is_sealed(&self) -> bool {
        self.segments.back().is_none_or(|tail| {
            tail.events == self.retention.segment_slots || tail.bytes > self.lean_max / 8
        })
    }

    fn open_segment(&mut self, now: Instant) {
        self.evict(now);
        let slots = (0..self.retention.segment_slots)
            .map(|_| OnceSlot::empty())
            .collect();
        let first = self.head;
        self.segments.push_back(SegmentRecord {
            segment: Segment { first, slots },
            events: 0,
            bytes: 0,
            first_at: now,
            newest_at: now,
        });
        self.publish_directory();
    }

    /// Evicts the oldest segments while a bound demands it; the newest one always stays. Returns whether any was evicted.
    fn evict(&mut self, now: Instant) -> bool {
        let before = self.segments.len();
        while self.segments.len() > 1 && self.may_evict_oldest(now) {
            let Some(evicted) = self.segments.pop_front() else {
                break;
            };
            self.events -= evicted.events;
            self.bytes -= evicted.bytes;
        }
        self.segments.len() < before
    }

    fn may_evict_oldest(&self, now: Instant) -> bool {
        let Some(oldest) = self.segments.front() else {
            return false;
        };
        let age = now.saturating_duration_since(oldest.newest_at);
        let is_old = age > self.retention.age_max;
        self.bytes > self.retention.bytes_max
            || (self.bytes > self.lean_max && age > RECENT_AGE)
            || self.events > self.retention.events_max
            || (is_old && self.has_enough_without(oldest))
    }

    fn publish_directory(&self) {
        let segments: Box<[_]> = self
            .segments
            .iter()
            .map(|record| record.segment.clone())
            .collect();
        self.ring.0.directory.publish(Arc::new(SegmentDirectory {
            oldest: segments.first().map_or(self.head, |oldest| oldest.first),
            segments,
            segment_slots: self.retention.segment_slots as u64,
        }));
    }
}

#[cfg(test)]
mod tests;

#[cfg(all(test, feature = "loom"))]
mod models;
