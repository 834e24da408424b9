//! The views that events are laid out in: reached by what an event carries. It takes no lock and wakes nobody.

use std::sync::Arc;
use std::time::Instant;

use slab::Slab;

use super::directory::ViewChanges;
use crate::cache::Event;
use crate::view::selector_index::{Hasher, Number, SelectorIndex};
use crate::view::shared::{Draft, Projections, ViewCore, ViewWriter};

/// Views that are swept with each batch for what they no longer need. Each is in no cache of the processor.
const SWEPT_PER_BATCH: usize = 1;
/// What letting go of views that nobody watches may cost with one batch, in views searched for them in the index: a
/// millisecond or two. The others wait, and nothing is evaluated for them.
const DROP_COST: usize = 1 << 21;
/// What each costs besides, so that 1,024 go with one batch at most.
const DROP_COST_EACH: usize = 1 << 11;

/// Drafts kept for the next batch: as many as views usually show something of one.
const SPARES: usize = 64;
/// Events of a draft that is kept; larger ones are seldom.
const DRAFT_LEN_MAX: usize = 256;

/// What an event costs that reaches no view, in terms of selectors.
const EVENT_COST: usize = 16;
/// So many bytes of an object are another term: an object has as many labels to be looked up as fit in it.
const LABELS_PER_TERM: usize = 64;
/// Laying out ends with the event that exceeds this, about a millisecond, so that others get their turn.
const SLICE_COST: usize = 32_768;

/// What laying out came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LayoutOutcome {
    /// Events taken, from the first on; at least one if there are any.
    pub(super) events: usize,
    /// Lines laid out in views.
    pub(super) lines: usize,
}

#[derive(Debug)]
pub(super) struct ViewTable {
    views: Slab<ViewWriter>,
    interest: SelectorIndex,
    /// Views without watchers that are still here.
    left: Vec<Arc<ViewCore>>,
    /// Views that show something of the batch being laid out.
    touched: Vec<Number>,
    /// Memory for what they show.
    spare: Vec<Draft>,
    /// Where sweeping goes on.
    swept: usize,
}

impl ViewTable {
    pub(super) fn new(hasher: Hasher) -> Self {
        Self {
            views: Slab::new(),
            interest: SelectorIndex::new(hasher),
            left: Vec::new(),
            touched: Vec::new(),
            spare: Vec::new(),
            swept: 0,
        }
    }

    /// Takes in the views that came, and lets go of those that nobody watches.
    pub(super) fn settle(&mut self, changes: ViewChanges) {
        for writer in changes.arrived {
            self.insert(writer);
        }
        self.left.extend(changes.left);
        let mut cost = 0;
        while cost < DROP_COST
            && let Some(core) = self.left.pop()
        {
            cost += DROP_COST_EACH + self.remove(&core);
        }
    }

    fn insert(&mut self, writer: ViewWriter) {
        let entry = self.views.vacant_entry();
        let number = narrow(entry.key());
        // A view comes once.
        let _ = writer.core().number.set(number);
        self.interest.insert(number, writer.core().place());
        entry.insert(writer);
    }

    /// Returns how many views were searched for it.
    fn remove(&mut self, core: &ViewCore) -> usize {
        let Some(number) = core.number.get() else {
            return 0;
        };
        self.views.try_remove(*number as usize);
        self.interest.remove(*number, core.place())
    }

    /// Lays out a batch, or its first part, in every view that shows some of it, and adds those to `shown`.
    pub(super) fn lay_out(
        &mut self,
        events: &[Arc<Event>],
        now: Instant,
        shown: &mut Vec<Arc<ViewCore>>,
    ) -> LayoutOutcome {
        let Self {
            views,
            interest,
            touched,
            spare,
            ..
        } = self;
        let (mut laid_out, mut cost) = (LayoutOutcome::default(), 0);
        let mut cuts = Projections::default();
        for event in events {
            cuts.clear();
            cost += EVENT_COST + event.object().frame_len() / LABELS_PER_TERM;
            interest.concerned(event, |number| {
                let offered = views[number as usize].offer(event, spare, &mut cuts);
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
            let (lines, draft) = writer.finish(now);
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

    /// Lets a few views drop what they no longer need; each time others, so that all have their turn.
    fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEPT_PER_BATCH.min(self.views.capacity()) {
            // Every number given out is below the capacity.
            self.swept = (self.swept + 1) % self.views.capacity();
            if let Some(writer) = self.views.get_mut(self.swept) {
                writer.expire(now);
            }
        }
    }
}

#[expect(clippy::expect_used, reason = "each view takes memory of its own")]
fn narrow(key: usize) -> Number {
    Number::try_from(key).expect("views number fewer than 2^32")
}

#[cfg(test)]
mod tests;
