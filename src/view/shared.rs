//! A view: everything that watchers with one selector see, laid out once for all of them.

mod cuts;
mod firsts;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::bookmark::{BookmarkTemplate, Marker};
use super::projection::{Projection, ProjectionError};
use super::selector::Selector;
use super::selector_index::{IndexPosition, Number};
use super::transition::seen_as;
use super::waiters::{WaiterList, WatchWaiter};
use crate::cache::{Event, Flag, Lagged, Retention, Ring, RingWriter, Sequence};
use crate::fairness::Peer;
use crate::resource::{Encoding, EventKind, ResourceVersion};
pub(super) use cuts::Projections;
use firsts::BatchStarts;

/// Events of one dispatch that a view shows, as one contiguous piece of its stream.
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
    /// How many events.
    pub count: usize,
    /// When they became readable.
    pub published_at: Instant,
    /// Their frames, one after the other.
    pub frames: Bytes,
}

/// Batches are only hints to the history, so a view keeps few, and none for long: a watcher who is further behind reads
/// the history. What is kept holds frames that may be in memory for nobody else.
const RETENTION: Retention = Retention {
    segment_slots: 8,
    events_min: 0,
    events_max: 64,
    bytes_max: 4 << 20,
    age_min: Duration::from_secs(2),
};

/// The watchers' side of a view. When the last of them drops it, the view is over: whoever asks for the same later gets
/// another one.
#[derive(Debug)]
pub struct View {
    core: Arc<ViewCore>,
    departures: Arc<EmptyViews>,
}

/// What watchers and writer of a view share.
#[derive(Debug)]
pub(super) struct ViewCore {
    selector: Selector,
    /// What is done to each frame; nothing to whole objects in the cache's own encoding.
    cut: Option<Projection>,
    /// How the cache's own frames are written.
    source: Encoding,
    /// Where the index has it.
    place: IndexPosition,
    /// What it adds to the cost of an event that reaches it.
    weight: usize,
    /// The client in whose share that is, for as long as the view lasts.
    opener: Peer,
    batches: Arc<Ring<Batch>>,
    /// Where batches began: a watcher who overran them needs to know from where to read the history. Only such a watcher
    /// and the writer take the lock.
    firsts: Mutex<BatchStarts>,
    waiting: Arc<WaiterList>,
    closed: Flag,
    /// Set when the last watcher is gone.
    left: OnceLock<()>,
    /// Its number among those that events are laid out in, once it has one.
    pub(super) number: OnceLock<Number>,
}

/// Views whose last watcher is gone, until the hub lets go of them.
#[derive(Debug, Default)]
pub(super) struct EmptyViews(Mutex<Vec<Arc<ViewCore>>>);

impl EmptyViews {
    fn push(&self, core: Arc<ViewCore>) {
        self.locked().push(core);
    }

    /// Those since the last time.
    pub(super) fn take(&self) -> Vec<Arc<ViewCore>> {
        std::mem::take(&mut self.locked())
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Arc<ViewCore>>> {
        // Nothing under this lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Before it is in the list: whoever finds it there finds it left.
        let _ = self.core.left.set(());
        self.departures.push(Arc::clone(&self.core));
    }
}

impl View {
    /// True when no batch will come any more: the resource is no longer served, or there was an event that cannot be shown in this
    /// form. Its watchers end; nobody else enters it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    pub(super) fn close(&self) {
        self.core.close();
    }

    /// What its watchers asked for.
    #[must_use]
    pub fn selector(&self) -> &Selector {
        &self.core.selector
    }

    /// The form that its watchers get; `None` for objects as the cache holds them.
    #[must_use]
    pub fn cut(&self) -> Option<Projection> {
        self.core.cut
    }

    /// How its frames are written.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        let core = &self.core;
        core.cut.map_or(core.source, |cut| cut.rendition().encoding)
    }

    /// The event's frame as this view shows it to a watcher to whom it is of `kind`.
    ///
    /// # Errors
    /// It cannot be cut.
    pub fn frame(&self, event: &Event, kind: EventKind) -> Result<Bytes, ProjectionError> {
        self.core.frame(event, kind)
    }

    /// A bookmark as this view's watchers get it.
    ///
    /// # Errors
    /// It cannot be cut.
    pub fn bookmark(
        &self,
        shape: &BookmarkTemplate,
        version: ResourceVersion,
        marker: Marker,
    ) -> Result<Bytes, ProjectionError> {
        let whole = shape.frame(version, marker);
        self.core
            .cut
            .map_or_else(|| Ok(whole.clone()), |cut| cut.frame(&whole))
    }

    /// What looking at an object of `len` bytes costs one watcher, in terms of selectors; more if it `is_shown`, and its
    /// frame has to be made.
    #[must_use]
    pub fn cost(&self, len: usize, is_shown: bool) -> usize {
        let cut = self.cut().filter(|_| is_shown);
        1 + self.selector().term_count() + cut.map_or(0, |_| len / CUT_PER_TERM)
    }

    #[cfg(test)]
    pub(super) const fn core(&self) -> &Arc<ViewCore> {
        &self.core
    }

    /// The next batch to be made: where a watcher who joins now starts.
    #[must_use]
    pub fn head(&self) -> Sequence {
        self.core.batches.head()
    }

    /// Shows batches from `cursor` on; returns the cursor to read next.
    ///
    /// # Errors
    /// [`Lagged`] when batches were missed: read the history instead and join again.
    pub fn read(
        &self,
        cursor: Sequence,
        mut visit: impl FnMut(&Batch) -> ControlFlow<()>,
    ) -> Result<Sequence, Lagged> {
        self.core.batches.read(cursor, |_, batch| visit(batch))
    }

    /// The first event of the batch at `cursor`, remembered longer than the batch itself; of a batch long ago, that of
    /// one before it. `None` when that is forgotten too, or the batch still to come.
    #[must_use]
    pub fn first_of(&self, cursor: Sequence) -> Option<Sequence> {
        self.core.firsts().at_or_before(cursor)
    }

    pub(super) fn waiter(&self, spread: usize) -> WatchWaiter {
        self.core.waiting.waiter(spread)
    }
}

impl ViewCore {
    pub(super) const fn selector(&self) -> &Selector {
        &self.selector
    }

    pub(super) const fn cut(&self) -> Option<Projection> {
        self.cut
    }

    pub(super) const fn place(&self) -> &IndexPosition {
        &self.place
    }

    /// What it weighs, and in whose share.
    pub(super) const fn weight(&self) -> (usize, Peer) {
        (self.weight, self.opener)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_set()
    }

    pub(super) fn close(&self) {
        self.closed.set();
    }

    fn frame(&self, event: &Event, kind: EventKind) -> Result<Bytes, ProjectionError> {
        let whole = event.frame(kind);
        self.cut
            .map_or_else(|| Ok(whole.clone()), |cut| cut.frame(&whole))
    }

    fn firsts(&self) -> MutexGuard<'_, BatchStarts> {
        // Pushing and looking cannot panic halfway.
        self.firsts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While this is held, the view's writer waits with its batch.
    #[cfg(test)]
    pub(super) fn hold(&self) -> MutexGuard<'_, impl Sized> {
        self.firsts()
    }

    pub(super) fn wake_all(&self, scratch: &mut Vec<Waker>) -> usize {
        self.waiting.wake_all(scratch)
    }
}

/// The writer's side of a view; the hub owns it.
#[derive(Debug)]
pub(super) struct ViewWriter {
    core: Arc<ViewCore>,
    batches: RingWriter<Batch>,
    /// Events below were offered.
    offered: Sequence,
    /// The batch being made; without memory between two batches.
    draft: Draft,
    /// An event could not be shown: the view ends with the batch being made.
    has_failed: bool,
}

/// Events that a view shows of a dispatch.
pub(super) type Draft = Vec<(Sequence, ResourceVersion, Bytes)>;

/// What a view is made of.
#[derive(Debug)]
pub(super) struct ViewParts {
    pub(super) selector: Selector,
    pub(super) cut: Option<Projection>,
    pub(super) source: Encoding,
    pub(super) place: IndexPosition,
    pub(super) weight: usize,
    pub(super) opener: Peer,
    /// Its watchers read events below from the history.
    pub(super) from: Sequence,
}

/// What an event came to in a view.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfferOutcome {
    /// The first of a batch: [`ViewWriter::finish`] has to follow, after the last.
    pub(super) is_first: bool,
    /// What the look cost, in terms.
    pub(super) cost: usize,
}

/// So many bytes are copied in the time that a term takes.
const COPIED_PER_TERM: usize = 512;
/// So many bytes are gone through to cut something out of them in that time.
const CUT_PER_TERM: usize = 64;

impl ViewWriter {
    /// A view with one watcher, and its writer.
    pub(super) fn new(parts: ViewParts, departures: &Arc<EmptyViews>) -> (Self, Arc<View>) {
        let batches = RingWriter::new(RETENTION);
        let core = Arc::new(ViewCore {
            selector: parts.selector,
            cut: parts.cut,
            source: parts.source,
            place: parts.place,
            weight: parts.weight,
            opener: parts.opener,
            batches: Arc::clone(batches.ring()),
            firsts: Mutex::default(),
            waiting: Arc::default(),
            closed: Flag::default(),
            left: OnceLock::new(),
            number: OnceLock::new(),
        });
        let view = Arc::new(View {
            core: Arc::clone(&core),
            departures: Arc::clone(departures),
        });
        let writer = Self {
            core,
            batches,
            offered: parts.from,
            draft: Draft::new(),
            has_failed: false,
        };
        (writer, view)
    }

    pub(super) const fn core(&self) -> &Arc<ViewCore> {
        &self.core
    }

    /// True while some watcher holds the view.
    pub(super) fn is_watched(&self) -> bool {
        self.core.left.get().is_none()
    }

    /// Takes an event in, if the view shows it. `spare` is memory to use, `cuts` what was cut out of this event for other views.
    /// An event that is offered again is passed over.
    pub(super) fn offer(
        &mut self,
        event: &Event,
        spare: &mut Vec<Draft>,
        cuts: &mut Projections,
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
        let frame = match core.cut {
            None => Ok(event.frame(kind)),
            Some(cut) => {
                let (frame, is_new) = cuts.frame(event, kind, cut);
                offered.cost += if is_new { len / CUT_PER_TERM } else { 0 };
                frame
            }
        };
        let Ok(frame) = frame else {
            // As upstream ends a stream when an event fails to encode; what came before it is still shown.
            self.has_failed = true;
            return offered;
        };
        offered.cost += frame.len() / COPIED_PER_TERM;
        if offered.is_first {
            self.draft = spare.pop().unwrap_or_default();
        }
        self.draft
            .push((event.sequence(), event.resource_version(), frame));
        offered
    }

    /// Lays out what was taken in; returns how many events, and the memory of before. If any, there is a new batch.
    pub(super) fn finish(&mut self, now: Instant) -> (usize, Draft) {
        let mut draft = std::mem::take(&mut self.draft);
        let mut count = 0;
        if let Some(batch) = joined(&draft, now) {
            draft.clear();
            count = batch.count;
            let len = batch.frames.len();
            self.core.firsts().push(batch.first);
            self.batches.append(batch, len, now);
        }
        if self.has_failed {
            // Only now: a watcher that finds the view closed does not look for another batch.
            self.core.close();
        }
        (count, draft)
    }

    /// Lets batches go that are old; for views that seldom show anything.
    pub(super) fn expire(&mut self, now: Instant) {
        self.batches.expire_all(now);
    }
}

/// One event keeps its own shared frame; several are copied once into one piece, for all watchers of the view.
fn joined(events: &[(Sequence, ResourceVersion, Bytes)], published_at: Instant) -> Option<Batch> {
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
        published_at,
        frames,
    })
}

/// Shows a range of the history to a watcher with this selector, each event with what it is to the watcher; `None` for those
/// that it must not hear of.
///
/// Returns the sequence to read next.
///
/// # Errors
/// [`Lagged`] when `from` has left the ring.
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
