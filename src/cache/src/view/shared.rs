//! A view: the frames of all events that watches with the same selector and form see, laid out once for all of them.

mod firsts;
mod projected_frames;

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::bookmark::{BookmarkTemplate, Marker};
use super::compressed::{CompressedBatches, CompressedWatch, GzipWeight};
use super::end_schedule::EndSchedule;
use super::projection::{Projection, ProjectionError};
use super::selector_index::{IndexPosition, Number};
use super::transition::seen_as;
use super::waiters::{WaiterList, WatchWaiter};
use crate::cache::{Arrival, Event, Flag, Lagged, Retention, Ring, RingWriter, Sequence};
use crate::fairness::Peer;
use crate::resource::{Encoding, EventKind, ResourceVersion};
use crate::selector::Selector;
use firsts::BatchStarts;
use parking_lot::{Mutex, MutexGuard};
pub(super) use projected_frames::ProjectedFrames;

/// The events of one dispatch that a view shows, as one contiguous piece of its stream.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Sequence of the first event in the history.
    pub first: Sequence,
    /// Sequence of the last event in the history.
    pub last: Sequence,
    /// Version of the first event.
    pub first_version: ResourceVersion,
    /// Version of the last event.
    pub last_version: ResourceVersion,
    /// Number of events.
    pub count: usize,
    /// When the first event arrived from upstream; the age, if that of one of the events is known.
    pub arrival: Arrival,
    /// The events' frames, one after the other.
    pub frames: Bytes,
}

/// Batches are only a shortcut to the history, so a view keeps few of them for a short time. A watch that is further behind
/// reads the history. A kept batch holds frames that may be needed nowhere else.
const RETENTION: Retention = Retention {
    segment_slots: 8,
    events_min: 0,
    events_max: 64,
    bytes_max: 4 << 20,
    age_max: Duration::from_secs(2),
};

/// Maximum bytes of a view's batches while memory is short.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// The watches' side of a view. The view ends when the last watch drops it; a later watch with the same parameters gets a new
/// view.
#[derive(Debug)]
pub struct View {
    core: Arc<ViewCore>,
    empty_views: Arc<EmptyViews>,
}

/// The state that the watches and the writer of a view share.
#[derive(Debug)]
pub(super) struct ViewCore {
    selector: Selector,
    /// The projection of each frame; `None` for whole objects in the cache's own encoding.
    projection: Option<Projection>,
    /// The encoding of the cache's own frames.
    source: Encoding,
    /// The view's position in the index.
    position: IndexPosition,
    /// The cost that the view adds to an event that reaches it.
    weight: usize,
    /// The client whose share the weight is charged to, as long as the view exists.
    opener: Peer,
    batches: Arc<Ring<Batch>>,
    /// Where batches began in the history: a watch that fell out of the batches needs to know from where to read the history.
    /// Only such a watch and the writer take the lock.
    batch_starts: Mutex<BatchStarts>,
    waiters: Arc<WaiterList>,
    compressed: Arc<CompressedBatches>,
    closed: Flag,
    /// Set when the view's watches are to end one after the other.
    end_schedule: OnceLock<Arc<EndSchedule>>,
    /// Set when the last watch has dropped the view.
    unwatched: OnceLock<()>,
    /// The view's number in the view table, once the table has the view.
    pub(super) number: OnceLock<Number>,
}

/// Views whose last watch has dropped them, until the hub removes them.
#[derive(Debug, Default)]
pub(super) struct EmptyViews(Mutex<Vec<Arc<ViewCore>>>);

impl EmptyViews {
    fn push(&self, core: Arc<ViewCore>) {
        self.locked().push(core);
    }

    /// Takes the views that were added since the last call.
    pub(super) fn take(&self) -> Vec<Arc<ViewCore>> {
        std::mem::take(&mut self.locked())
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Arc<ViewCore>>> {
        // Nothing that holds this lock panics.
        self.0.lock()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Set the flag before the view is in the list: code that finds the view in the list must find the flag set.
        let _ = self.core.unwatched.set(());
        self.empty_views.push(Arc::clone(&self.core));
    }
}

impl View {
    /// Whether no more batches will come, because the resource is no longer served or an event could not be shown in this
    /// form. The view's watches end, and no other watch joins it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    pub(super) fn close(&self) {
        self.core.close();
    }

    /// When the view's watches end, if that is known. It does not change once it is set.
    #[must_use]
    pub fn end_schedule(&self) -> Option<&Arc<EndSchedule>> {
        self.core.end_schedule.get()
    }

    pub(super) fn schedule_end(&self, schedule: &Arc<EndSchedule>) {
        self.core.schedule_end(schedule);
    }

    /// The selector of the view's watches.
    #[must_use]
    pub fn selector(&self) -> &Selector {
        &self.core.selector
    }

    /// The projection of the view's objects; `None` for objects as the cache holds them.
    #[must_use]
    pub fn projection(&self) -> Option<Projection> {
        self.core.projection
    }

    /// The encoding of the view's frames.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        let core = &self.core;
        core.projection
            .map_or(core.source, |projection| projection.rendition().encoding)
    }

    /// The event's frame in this view's form, for a watch that sees it as `kind`.
    ///
    /// # Errors
    /// The event cannot be projected.
    pub fn frame(&self, event: &Event, kind: EventKind) -> Result<Bytes, ProjectionError> {
        self.core.frame(event, kind)
    }

    /// A bookmark in this view's form.
    ///
    /// # Errors
    /// The bookmark cannot be projected.
    pub fn bookmark(
        &self,
        template: &BookmarkTemplate,
        version: ResourceVersion,
        marker: Marker,
    ) -> Result<Bytes, ProjectionError> {
        let whole = template.frame(version, marker);
        self.core
            .projection
            .map_or_else(|| Ok(whole.clone()), |projection| projection.frame(&whole))
    }

    /// The cost for one watch to evaluate an object of `len` bytes, in selector terms. It is higher if the object `is_shown` and
    /// its frame has to be projected.
    #[must_use]
    pub fn cost(&self, len: usize, is_shown: bool) -> usize {
        let projection = self.projection().filter(|_| is_shown);
        1 + self.selector().term_count() + projection.map_or(0, |_| len / PROJECTED_BYTES_PER_TERM)
    }

    #[cfg(test)]
    pub(super) const fn core(&self) -> &Arc<ViewCore> {
        &self.core
    }

    /// A watch that gets the batches compressed, if it and the others are worth it.
    #[must_use]
    pub fn compress(&self, weight: GzipWeight) -> CompressedWatch {
        CompressedWatch::new(&self.core.compressed, weight)
    }

    /// The number of the next batch: the cursor of a watch that joins now.
    #[must_use]
    pub fn head(&self) -> Sequence {
        self.core.batches.head()
    }

    /// Visits the batches from `cursor` on; returns the next cursor.
    ///
    /// # Errors
    /// [`Lagged`] if batches were missed. Then read the history and join again.
    pub fn read(
        &self,
        cursor: Sequence,
        mut visit: impl FnMut(&Batch) -> ControlFlow<()>,
    ) -> Result<Sequence, Lagged> {
        self.core.batches.read(cursor, |_, batch| visit(batch))
    }

    /// Whether the batch at `cursor` can be read here or is still to come. If not, a watch reads the history instead.
    #[must_use]
    pub fn keeps(&self, cursor: Sequence) -> bool {
        self.core.batches.oldest() <= cursor
    }

    /// The sequence of the first event in the batch at `cursor`, which is remembered longer than the batch itself. For an old batch
    /// it is that of an earlier one. `None` if that is forgotten, too, or if the batch does not exist yet.
    #[must_use]
    pub fn first_of(&self, cursor: Sequence) -> Option<Sequence> {
        self.core.batch_starts().at_or_before(cursor)
    }

    pub(super) fn waiter(&self, spread: usize) -> WatchWaiter {
        self.core.waiters.waiter(spread)
    }
}

impl ViewCore {
    pub(super) const fn selector(&self) -> &Selector {
        &self.selector
    }

    pub(super) const fn projection(&self) -> Option<Projection> {
        self.projection
    }

    pub(super) const fn position(&self) -> &IndexPosition {
        &self.position
    }

    /// The view's weight, and the client to which it is charged.
    pub(super) const fn weight(&self) -> (usize, Peer) {
        (self.weight, self.opener)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_set()
    }

    pub(super) fn close(&self) {
        self.closed.set();
    }

    /// The first schedule counts.
    pub(super) fn schedule_end(&self, schedule: &Arc<EndSchedule>) {
        let _ = self.end_schedule.set(Arc::clone(schedule));
    }

    fn frame(&self, event: &Event, kind: EventKind) -> Result<Bytes, ProjectionError> {
        let whole = event.frame(kind);
        self.projection
            .map_or_else(|| Ok(whole.clone()), |projection| projection.frame(&whole))
    }

    fn batch_starts(&self) -> MutexGuard<'_, BatchStarts> {
        // Neither a push nor a lookup panics in the middle of a change.
        self.batch_starts.lock()
    }

    /// While the guard exists, the view's writer cannot finish a batch.
    #[cfg(test)]
    pub(super) fn hold(&self) -> MutexGuard<'_, impl Sized> {
        self.batch_starts()
    }

    pub(super) fn wake_all(&self, scratch: &mut Vec<Waker>) -> usize {
        self.waiters.wake_all(scratch)
    }
}

/// The writer's side of a view; the hub owns it.
#[derive(Debug)]
pub(super) struct ViewWriter {
    core: Arc<ViewCore>,
    batches: RingWriter<Batch>,
    /// Events with a lower sequence have been offered.
    offered: Sequence,
    /// The batch under construction; it has no memory allocated between two batches.
    draft: Draft,
    /// The arrival of the draft's events.
    arrival: Option<Arrival>,
    /// An event could not be projected: the view closes after the batch under construction.
    has_failed: bool,
}

/// The events of a dispatch that a view shows.
pub(super) type Draft = Vec<(Sequence, ResourceVersion, Bytes)>;

/// The parameters of a new view.
#[derive(Debug)]
pub(super) struct ViewParts {
    pub(super) selector: Selector,
    pub(super) projection: Option<Projection>,
    pub(super) source: Encoding,
    pub(super) position: IndexPosition,
    pub(super) weight: usize,
    pub(super) opener: Peer,
    /// The view's watches read events with a lower sequence from the history.
    pub(super) from: Sequence,
}

/// The result of offering an event to a view.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfferOutcome {
    /// The event is the first of a batch: [`ViewWriter::finish`] must be called after the last event.
    pub(super) is_first: bool,
    /// The cost of the offer, in selector terms.
    pub(super) cost: usize,
}

/// Bytes that are copied in the time of one term.
const COPIED_BYTES_PER_TERM: usize = 512;
/// Bytes that are projected in the time of one term.
const PROJECTED_BYTES_PER_TERM: usize = 64;

impl ViewWriter {
    /// A view with one watch, and its writer.
    pub(super) fn new(parts: ViewParts, empty_views: &Arc<EmptyViews>) -> (Self, Arc<View>) {
        let batches = RingWriter::new(RETENTION);
        let core = Arc::new(ViewCore {
            selector: parts.selector,
            projection: parts.projection,
            source: parts.source,
            position: parts.position,
            weight: parts.weight,
            opener: parts.opener,
            batches: Arc::clone(batches.ring()),
            batch_starts: Mutex::default(),
            waiters: Arc::default(),
            compressed: Arc::default(),
            closed: Flag::default(),
            end_schedule: OnceLock::new(),
            unwatched: OnceLock::new(),
            number: OnceLock::new(),
        });
        let view = Arc::new(View {
            core: Arc::clone(&core),
            empty_views: Arc::clone(empty_views),
        });
        let writer = Self {
            core,
            batches,
            offered: parts.from,
            draft: Draft::new(),
            arrival: None,
            has_failed: false,
        };
        (writer, view)
    }

    pub(super) const fn core(&self) -> &Arc<ViewCore> {
        &self.core
    }

    /// Whether a watch holds the view.
    pub(super) fn is_watched(&self) -> bool {
        self.core.unwatched.get().is_none()
    }

    /// Adds an event to the batch, if the view shows it. `spare` has drafts to reuse; `projected` has the projected frames of this
    /// event, which other views share. An event that was offered before is ignored.
    pub(super) fn offer(
        &mut self,
        event: &Event,
        spare: &mut Vec<Draft>,
        projected: &mut ProjectedFrames,
    ) -> OfferOutcome {
        let core = &self.core;
        let mut offered = OfferOutcome {
            is_first: false,
            cost: 1,
        };
        let is_over = self.has_failed || core.is_closed() || !self.is_watched();
        if event.sequence() < self.offered || is_over {
            return offered;
        }
        self.offered = event.sequence() + 1;
        offered.cost += core.selector.term_count();
        let Some(kind) = seen_as(event, &core.selector) else {
            return offered;
        };
        offered.is_first = self.draft.is_empty();
        let len = event.object().frame_len();
        let frame = match core.projection {
            None => Ok(event.frame(kind)),
            Some(projection) => {
                let (frame, is_new) = projected.frame(event, kind, projection);
                offered.cost += if is_new {
                    len / PROJECTED_BYTES_PER_TERM
                } else {
                    0
                };
                frame
            }
        };
        let Ok(frame) = frame else {
            // As upstream ends a stream when an event fails to encode. The events before it are still shown.
            self.has_failed = true;
            return offered;
        };
        offered.cost += frame.len() / COPIED_BYTES_PER_TERM;
        if offered.is_first {
            self.draft = spare.pop().unwrap_or_default();
        }
        let arrival = event.arrival();
        let first = self.arrival.get_or_insert(arrival);
        first.age = first.age.or(arrival.age);
        self.draft
            .push((event.sequence(), event.resource_version(), frame));
        offered
    }

    /// Appends the batch under construction, if it has events. Returns their number, and the memory of the draft.
    pub(super) fn finish(&mut self, now: Instant) -> (usize, Draft) {
        let mut draft = std::mem::take(&mut self.draft);
        let mut count = 0;
        let arrival = self.arrival.take();
        if let Some(batch) = arrival.and_then(|arrival| joined(&draft, arrival)) {
            draft.clear();
            count = batch.count;
            let len = batch.frames.len();
            self.core.batch_starts().push(batch.first);
            self.batches.append(batch, len, now);
        }
        if self.has_failed {
            // Close only after the batch was appended: a watch that finds the view closed does not read another batch.
            self.core.close();
        }
        (count, draft)
    }

    /// Bytes of the batches. A batch of a single event may share them with the history.
    pub(super) fn frames_len(&self) -> usize {
        self.batches.bytes()
    }

    /// Keeps fewer batches while memory `is_short`. A watch that needs a dropped one reads the history.
    pub(super) fn bound(&mut self, is_short: bool, now: Instant) {
        let bytes_max = match is_short {
            true => {
                self.core.compressed.clear();
                SHORT_BYTES_MAX
            }
            false => RETENTION.bytes_max,
        };
        self.batches.set_bytes_max(bytes_max, now);
    }

    /// Drops old batches. For views that seldom show an event.
    pub(super) fn expire(&mut self, now: Instant) {
        self.batches.expire_all(now);
    }
}

/// A single event keeps its own shared frame. Several events are copied once into one buffer for all watches of the view.
fn joined(events: &[(Sequence, ResourceVersion, Bytes)], arrival: Arrival) -> Option<Batch> {
    let ((first, first_version, frame), (last, last_version, _)) =
        (events.first()?, events.last()?);
    let frames = if events.len() == 1 {
        frame.clone()
    } else {
        let len = events.iter().map(|(_, _, frame)| frame.len()).sum();
        let mut frames = BytesMut::with_capacity(len);
        events
            .iter()
            .for_each(|(_, _, frame)| frames.extend_from_slice(frame));
        frames.freeze()
    };
    let (first, last) = (*first, *last);
    Some(Batch {
        first,
        last,
        first_version: *first_version,
        last_version: *last_version,
        count: events.len(),
        arrival,
        frames,
    })
}

/// Visits a range of the history for a watch with this selector: each event with the kind that the watch sees, or `None` if it must
/// not receive the event.
///
/// Returns the sequence to read next.
///
/// # Errors
/// [`Lagged`] if `from` was evicted from the ring.
pub fn filtered(
    history: &Ring<Arc<Event>>,
    selector: &Selector,
    range: std::ops::Range<Sequence>,
    mut visit: impl FnMut(&Event, Option<EventKind>) -> ControlFlow<()>,
) -> Result<Sequence, Lagged> {
    if range.is_empty() {
        return Ok(range.end.max(range.start));
    }
    history.read(range.start, |sequence, event| {
        if sequence >= range.end {
            return ControlFlow::Break(());
        }
        let flow = visit(event, seen_as(event, selector));
        if sequence + 1 == range.end {
            ControlFlow::Break(())
        } else {
            flow
        }
    })
}

#[cfg(test)]
mod tests;
