//! The views of one resource: found by what their watchers asked for, reached by what an event carries, and let go when
//! nobody watches them any more. It takes no lock and wakes nobody.

use std::hash::{BuildHasher as _, Hash};
use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashTable;
use slab::Slab;

use crate::cache::Event;
use crate::resource::Encoding;
use crate::view::cut::Cut;
use crate::view::interest::{Interest, Number, Place};
use crate::view::log::{Draft, View, ViewWriter};
use crate::view::selector::Selector;

/// Who shares a view: those who select alike and want the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wish<'a> {
    pub(super) selector: &'a Selector,
    pub(super) cut: Option<Cut>,
}

impl<'a> Wish<'a> {
    fn of(view: &'a View) -> Self {
        Self {
            selector: view.selector(),
            cut: view.cut(),
        }
    }
}

#[derive(Debug)]
struct Listed {
    writer: ViewWriter,
    place: Place,
}

/// Places that are swept with each batch. Each is a view that is in no cache of the processor.
const SWEPT_PER_BATCH: usize = 1;
/// Places that are swept with each new view: more than one, so that views go faster than they can come.
const SWEPT_PER_VIEW: usize = 4;

/// Drafts kept for the next batch: as many as views usually show something of one.
const SPARES: usize = 64;
/// Events of a draft that is kept; larger ones are seldom.
const DRAFT_LEN_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Roster {
    views: Slab<Listed>,
    by_wish: HashTable<Number>,
    hasher: foldhash::fast::RandomState,
    interest: Interest,
    /// Views that show something of the batch being laid out.
    touched: Vec<Number>,
    /// Memory for what they show.
    spare: Vec<Draft>,
    /// Where sweeping goes on.
    swept: usize,
}

impl Roster {
    /// The view of these watchers; made if nobody has it.
    pub(super) fn enter(&mut self, wish: Wish<'_>, source: Encoding) -> &Arc<View> {
        let hash = self.hasher.hash_one(wish);
        let same = |number: &Number| Wish::of(self.views[*number as usize].writer.view()) == wish;
        let number = match self.by_wish.find(hash, same) {
            Some(number) => *number,
            None => {
                self.sweep(SWEPT_PER_VIEW, None);
                self.insert(hash, wish, source)
            }
        };
        self.views[number as usize].writer.view()
    }

    fn insert(&mut self, hash: u64, wish: Wish<'_>, source: Encoding) -> Number {
        let entry = self.views.vacant_entry();
        let number = narrow(entry.key());
        let writer = ViewWriter::new(wish.selector.clone(), source, wish.cut);
        let place = self.interest.insert(number, wish.selector);
        entry.insert(Listed { writer, place });
        let Self { views, hasher, .. } = self;
        let rehash =
            |number: &Number| hasher.hash_one(Wish::of(views[*number as usize].writer.view()));
        self.by_wish.insert_unique(hash, number, rehash);
        number
    }

    /// Lays out a batch in every view that shows some of it, and adds those to `shown`. Returns how many lines.
    pub(super) fn lay_out(
        &mut self,
        events: &[Arc<Event>],
        now: Instant,
        shown: &mut Vec<Arc<View>>,
    ) -> usize {
        let Self {
            views,
            interest,
            touched,
            spare,
            ..
        } = self;
        for event in events {
            interest.concerned(event, |number| {
                if views[number as usize].writer.offer(event, spare) {
                    touched.push(number);
                }
            });
        }
        let mut count = 0;
        let mut touched = std::mem::take(&mut self.touched);
        for number in touched.drain(..) {
            let writer = &mut self.views[number as usize].writer;
            let mut is_over = true;
            if writer.is_watched() {
                let (lines, draft) = writer.finish(now);
                count += lines;
                if draft.capacity() <= DRAFT_LEN_MAX {
                    self.spare.push(draft);
                }
                shown.push(Arc::clone(writer.view()));
                // It could not show one of the events. Watchers who come later start after that one, in a new view.
                is_over = writer.view().is_closed();
            }
            if is_over {
                self.remove(number as usize);
            }
        }
        self.touched = touched;
        self.spare.truncate(SPARES);
        self.sweep(SWEPT_PER_BATCH, Some(now));
        count
    }

    /// Lets a few views go that nobody watches, or what they no longer need; each time others, so that all have their turn.
    fn sweep(&mut self, places: usize, now: Option<Instant>) {
        for _ in 0..places.min(self.views.capacity()) {
            // Every number given out is below the capacity.
            self.swept = (self.swept + 1) % self.views.capacity();
            let Some(listed) = self.views.get_mut(self.swept) else {
                continue;
            };
            if !listed.writer.is_watched() {
                self.remove(self.swept);
            } else if let Some(now) = now {
                listed.writer.expire(now);
            }
        }
    }

    fn remove(&mut self, number: usize) {
        let gone = self.views.remove(number);
        self.interest.remove(narrow(number), &gone.place);
        let hash = self.hasher.hash_one(Wish::of(gone.writer.view()));
        if let Ok(entry) = self
            .by_wish
            .find_entry(hash, |other| *other as usize == number)
        {
            entry.remove();
        }
    }

    /// All views, those included that nobody watches any more and no sweep has found yet.
    pub(super) fn views(&self) -> impl ExactSizeIterator<Item = &Arc<View>> {
        self.views.iter().map(|(_, listed)| listed.writer.view())
    }

    /// Whether any view has a watcher.
    pub(super) fn is_watched(&self) -> bool {
        self.views
            .iter()
            .any(|(_, listed)| listed.writer.is_watched())
    }
}

#[expect(clippy::expect_used, reason = "each view takes memory of its own")]
fn narrow(key: usize) -> Number {
    Number::try_from(key).expect("views number fewer than 2^32")
}

#[cfg(test)]
mod tests;
