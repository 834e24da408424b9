//! A view: everything that watchers with one selector see, laid out once for all of them.

mod firsts;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::bookmark::{BookmarkShape, Marker};
use super::cut::{Cut, CutError};
use super::selector::Selector;
use super::transition::seen_as;
use super::wake::{Seat, WakeList};
use crate::cache::{Event, Lagged, Retention, Ring, RingWriter, Sequence};
use crate::resource::{Encoding, EventKind, ResourceVersion};
use firsts::Firsts;

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

/// The readers' side of a view.
#[derive(Debug)]
pub struct View {
    selector: Selector,
    /// What is done to each frame; nothing to whole objects in the cache's own encoding.
    cut: Option<Cut>,
    /// How the cache's own frames are written.
    source: Encoding,
    batches: Arc<Ring<Batch>>,
    /// Where batches began: a watcher who overran them needs to know from where to read the history. Only such a watcher
    /// and the writer take the lock.
    firsts: Mutex<Firsts>,
    waiting: Arc<WakeList>,
    closed: OnceLock<()>,
}

impl View {
    /// True when no batch will come any more: the resource is no longer served, or there was an event that cannot be shown in this
    /// form. Its watchers end; nobody else enters it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    pub(super) fn close(&self) {
        // Closed twice is closed.
        let _ = self.closed.set(());
    }

    /// What its watchers asked for.
    #[must_use]
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// The form that its watchers get; `None` for objects as the cache holds them.
    #[must_use]
    pub const fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// How its frames are written.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.cut.map_or(self.source, |cut| cut.rendition().encoding)
    }

    /// The event's frame as this view shows it to a watcher to whom it is of `kind`.
    ///
    /// # Errors
    /// It cannot be cut.
    pub fn frame(&self, event: &Event, kind: EventKind) -> Result<Bytes, CutError> {
        let whole = event.frame(kind);
        self.cut
            .map_or_else(|| Ok(whole.clone()), |cut| cut.frame(&whole))
    }

    /// A bookmark as this view's watchers get it.
    ///
    /// # Errors
    /// It cannot be cut.
    pub fn bookmark(
        &self,
        shape: &BookmarkShape,
        version: ResourceVersion,
        marker: Marker,
    ) -> Result<Bytes, CutError> {
        let whole = shape.frame(version, marker);
        self.cut
            .map_or_else(|| Ok(whole.clone()), |cut| cut.frame(&whole))
    }

    /// The next batch to be made: where a watcher who joins now starts.
    #[must_use]
    pub fn head(&self) -> Sequence {
        self.batches.head()
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
        self.batches.read(cursor, |_, batch| visit(batch))
    }

    /// The first event of the batch at `cursor`, remembered longer than the batch itself; of a batch long ago, that of
    /// one before it. `None` when that is forgotten too, or the batch still to come.
    #[must_use]
    pub fn first_of(&self, cursor: Sequence) -> Option<Sequence> {
        self.firsts().at_or_before(cursor)
    }

    fn firsts(&self) -> MutexGuard<'_, Firsts> {
        // Pushing and looking cannot panic halfway.
        self.firsts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seat(&self, spread: usize) -> Seat {
        self.waiting.seat(spread)
    }

    pub(super) fn wake_all(&self, scratch: &mut Vec<Waker>) -> usize {
        self.waiting.wake_all(scratch)
    }
}

/// The writer's side of a view; the hub owns it.
#[derive(Debug)]
pub(super) struct ViewWriter {
    view: Arc<View>,
    batches: RingWriter<Batch>,
    /// Events below were offered.
    offered: Sequence,
    /// The batch being made; without memory between two batches.
    draft: Draft,
}

/// Events that a view shows of a dispatch.
pub(super) type Draft = Vec<(Sequence, ResourceVersion, Bytes)>;

impl ViewWriter {
    pub(super) fn new(selector: Selector, source: Encoding, cut: Option<Cut>) -> Self {
        let batches = RingWriter::new(RETENTION);
        let view = View {
            selector,
            cut,
            source,
            batches: Arc::clone(batches.ring()),
            firsts: Mutex::default(),
            waiting: Arc::default(),
            closed: OnceLock::new(),
        };
        Self {
            view: Arc::new(view),
            batches,
            offered: 0,
            draft: Draft::new(),
        }
    }

    pub(super) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// True while some watcher holds the view.
    pub(super) fn is_watched(&self) -> bool {
        Arc::strong_count(&self.view) > 1
    }

    /// Takes an event in, if the view shows it. True if it is the first of a batch; [`Self::finish`] has to follow
    /// then, after the last. `spare` is memory to use. An event that is offered again is passed over.
    pub(super) fn offer(&mut self, event: &Event, spare: &mut Vec<Draft>) -> bool {
        if event.sequence() < self.offered || self.view.is_closed() {
            return false;
        }
        self.offered = event.sequence() + 1;
        let Some(kind) = seen_as(event, &self.view.selector) else {
            return false;
        };
        let is_first = self.draft.is_empty();
        let Ok(frame) = self.view.frame(event, kind) else {
            // As upstream ends a stream when an event fails to encode; what came before it is still shown.
            self.view.close();
            return is_first;
        };
        if is_first {
            self.draft = spare.pop().unwrap_or_default();
        }
        self.draft
            .push((event.sequence(), event.resource_version(), frame));
        is_first
    }

    /// Lays out what was taken in; returns how many events, and the memory of before. If any, there is a new batch.
    pub(super) fn finish(&mut self, now: Instant) -> (usize, Draft) {
        let mut draft = std::mem::take(&mut self.draft);
        let Some(batch) = joined(&draft, now) else {
            return (0, draft);
        };
        draft.clear();
        let (len, count) = (batch.frames.len(), batch.count);
        self.view.firsts().push(batch.first);
        self.batches.append(batch, len, now);
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

/// Shows the part of the history from `from` on, and below `through`, that a selector lets pass.
///
/// Returns the sequence to read next.
///
/// # Errors
/// [`Lagged`] when `from` has left the ring.
pub fn filtered(
    history: &Ring<Arc<Event>>,
    selector: &Selector,
    range: std::ops::Range<Sequence>,
    mut visit: impl FnMut(&Event, EventKind) -> ControlFlow<()>,
) -> Result<Sequence, Lagged> {
    if range.is_empty() {
        return Ok(range.end.max(range.start));
    }
    history.read(range.start, |sequence, event| {
        if sequence >= range.end {
            return ControlFlow::Break(());
        }
        let flow =
            seen_as(event, selector).map_or(ControlFlow::Continue(()), |kind| visit(event, kind));
        if sequence + 1 == range.end {
            ControlFlow::Break(())
        } else {
            flow
        }
    })
}
