//! The views in which events are laid out, found by the values of an event's object. This module takes no lock and wakes no watch.

use std::sync::Arc;
use std::time::Instant;

use slab::Slab;

use super::directory::ViewChanges;
use crate::cache::Event;
use crate::view::selector_index::{Hasher, Number, SelectorIndex};
use crate::view::shared::{Draft, ProjectedFrames, ViewCore, ViewWriter};

/// Number of views whose old batches are dropped with each dispatch. Few, because such a view is usually in none of the processor's caches.
const SWEPT_PER_BATCH: usize = 1;
/// Maximum cost of removing unwatched views with one dispatch, in index entries that are searched: one or two milliseconds. The
/// other views wait for a later dispatch; no selector is evaluated for them.
const DROP_COST: usize = 1 << 21;
/// Additional cost of each removal, so that one dispatch removes at most 1,024 views.
const DROP_COST_EACH: usize = 1 << 11;

/// Number of drafts that are kept for reuse: usually at least as many as there are views that show events of one dispatch.
const SPARES: usize = 64;
/// Maximum length of a draft that is kept, in events; longer ones are rare.
const DRAFT_LEN_MAX: usize = 256;

/// Cost of an event that reaches no view, in selector terms.
const EVENT_COST: usize = 16;
/// Bytes of an object that count as one more term, because only the object's size bounds the number of labels to look up.
const OBJECT_BYTES_PER_TERM: usize = 64;
/// Laying out stops after the event that reaches this cost, about a millisecond, so that other tasks get their turn.
const SLICE_COST: usize = 32_768;

/// The result of laying out a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LayoutOutcome {
    /// Events laid out, counted from the first; at least one if there are any.
    pub(super) events: usize,
    /// Lines laid out in views.
    pub(super) lines: usize,
}

#[derive(Debug)]
pub(super) struct ViewTable {
    views: Slab<ViewWriter>,
    index: SelectorIndex,
    /// Unwatched views that have not been removed yet.
    unwatched: Vec<Arc<ViewCore>>,
    /// Views that show events of the batch being laid out.
    touched: Vec<Number>,
    spare: Vec<Draft>,
    /// The number of the view that the last sweep visited.
    sweep_position: usize,
    /// Bytes of all views' batches.
    frames_len: usize,
    /// Since when the views keep fewer batches, because memory is short.
    short_since: Option<Instant>,
}

impl ViewTable {
    pub(super) fn new(hasher: Hasher) -> Self {
        Self {
            views: Slab::new(),
            index: SelectorIndex::new(hasher),
            unwatched: Vec::new(),
            touched: Vec::new(),
            spare: Vec::new(),
            sweep_position: 0,
            frames_len: 0,
            short_since: None,
        }
    }

    /// Adds new views, and removes unwatched ones.
    pub(super) fn apply_changes(&mut self, changes: ViewChanges) {
        for mut writer in changes.added {
            if let Some(since) = self.short_since {
                writer.bound(true, since);
            }
            self.insert(writer);
        }
        self.unwatched.extend(changes.unwatched);
        let mut cost = 0;
        while cost < DROP_COST
            && let Some(core) = self.unwatched.pop()
        {
            cost += DROP_COST_EACH + self.remove(&core);
        }
    }

    fn insert(&mut self, writer: ViewWriter) {
        let entry = self.views.vacant_entry();
        let number = narrow(entry.key());
        // Each view is inserted once, so the number is not set yet.
        let _ = writer.core().number.set(number);
        self.index.insert(number, writer.core().position());
        entry.insert(writer);
    }

    /// Removes a view. Returns the number of index entries that were searched for it.
    fn remove(&mut self, core: &ViewCore) -> usize {
        let Some(number) = core.number.get() else {
            return 0;
        };
        self.frames_len -= self
            .views
            .try_remove(*number as usize)
            .map_or(0, |writer| writer.frames_len());
        self.index.remove(*number, core.position())
    }

    /// Lays out a batch, or the first part of it, in every view that shows some of its events, and adds these views to `shown`.
    pub(super) fn lay_out(
        &mut self,
        events: &[Arc<Event>],
        now: Instant,
        shown: &mut Vec<Arc<ViewCore>>,
    ) -> LayoutOutcome {
        let Self {
            views,
            index,
            touched,
            spare,
            ..
        } = self;
        let (mut laid_out, mut cost) = (LayoutOutcome::default(), 0);
        let mut projected = ProjectedFrames::default();
        for event in events {
            projected.clear();
            cost += EVENT_COST + event.object().frame_len() / OBJECT_BYTES_PER_TERM;
            index.concerned(event, |number| {
                let offered = views[number as usize].offer(event, spare, &mut projected);
                cost += offered.cost;
                if offered.is_first {
                    touched.push(number);
                }
            });
            laid_out.events += 1;
            if cost >= SLICE_COST {
                break;
            }
        }
        let mut touched = std::mem::take(&mut self.touched);
        for number in touched.drain(..) {
            let writer = &mut self.views[number as usize];
            self.frames_len -= writer.frames_len();
            let (lines, draft) = writer.finish(now);
            self.frames_len += writer.frames_len();
            laid_out.lines += lines;
            if draft.capacity() <= DRAFT_LEN_MAX {
                self.spare.push(draft);
            }
            shown.push(Arc::clone(writer.core()));
        }
        self.touched = touched;
        self.spare.truncate(SPARES);
        self.sweep(now);
        laid_out
    }

    /// Drops the old batches of a few views, different ones each time, so that all views are reached.
    fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEPT_PER_BATCH.min(self.views.capacity()) {
            // Every key of the slab is below its capacity.
            self.sweep_position = (self.sweep_position + 1) % self.views.capacity();
            if let Some(writer) = self.views.get_mut(self.sweep_position) {
                self.frames_len -= writer.frames_len();
                writer.expire(now);
                self.frames_len += writer.frames_len();
            }
        }
    }

    /// Bytes of all views' batches.
    pub(super) const fn frames_len(&self) -> usize {
        self.frames_len
    }

    /// Has the views keep fewer batches while memory `is_short`.
    pub(super) fn bound(&mut self, is_short: bool, now: Instant) {
        if self.short_since.is_some() == is_short {
            return;
        }
        self.short_since = is_short.then_some(now);
        for (_, writer) in &mut self.views {
            self.frames_len -= writer.frames_len();
            writer.bound(is_short, now);
            self.frames_len += writer.frames_len();
        }
    }
}

#[expect(clippy::expect_used, reason = "2^32 views do not fit in memory")]
fn narrow(key: usize) -> Number {
    Number::try_from(key).expect("a view's number must be below 2^32")
}

#[cfg(test)]
mod tests;
