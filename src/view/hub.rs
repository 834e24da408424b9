//! The views of one resource: who watches alike shares one, and each batch reaches every view once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::Waker;
use std::time::Instant;

mod roster;

use super::bookmark::BookmarkShape;
use super::cut::Cut;
use super::log::View;
use super::rendition::Rendition;
use super::selector::Selector;
use super::wake::{Seat, WakeList};
use crate::cache::{Event, Observer, Sequence, WatchCache};
use crate::resource::{ResourceKind, ResourceVersion};
use roster::{Roster, Wish};

/// How far a resource's views have come. All of it moves together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Events with a lower sequence are in the views.
    pub through: Sequence,
    /// The version that comes with it: bookmarks may speak of it once its events are delivered.
    pub version: ResourceVersion,
}

/// Where a watcher enters a view: history below `reached.through`, the view's batches from `cursor` on.
#[derive(Debug)]
pub struct Entry {
    /// The shared view.
    pub view: Arc<View>,
    /// The first batch to read.
    pub cursor: Sequence,
    /// What the batches before `cursor` add up to.
    pub reached: Reached,
    /// The watcher's place among those who wait for batches.
    pub seat: Seat,
}

#[derive(Debug, Default)]
struct State {
    roster: Roster,
    reached: Reached,
    /// Lines laid out since somebody asked.
    laid_out: u64,
    /// Seats are dealt over the shards in turn.
    seats: usize,
    closed: bool,
}

/// The right to dispatch, one batch at a time, with memory that is used again.
#[derive(Debug, Default)]
struct Turn {
    /// Views that show something of the batch.
    shown: Vec<Arc<View>>,
    wakers: Vec<Waker>,
}

/// All views of one resource. Joining and dispatching take turns on a short lock; reading takes none.
#[derive(Debug)]
pub struct Hub {
    kind: ResourceKind,
    state: Mutex<State>,
    /// Taken before the state, and by dispatching alone: it is held while watchers are woken.
    turn: Mutex<Turn>,
    /// Woken when the resource reaches a new version.
    progress: Arc<WakeList>,
    bookmark: RwLock<BookmarkShape>,
}

impl Hub {
    /// A hub without views.
    #[must_use]
    pub fn new(kind: &ResourceKind) -> Self {
        Self {
            kind: kind.clone(),
            state: Mutex::default(),
            turn: Mutex::default(),
            progress: Arc::default(),
            bookmark: RwLock::new(BookmarkShape::guessed(kind)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while dispatching ends the process (style §4.7); a reader finds the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the view of whole objects that `selector` lets pass, which is made if nobody has it.
    #[must_use]
    pub fn join(&self, selector: &Selector) -> Entry {
        self.join_as(selector, Rendition::whole(self.kind.encoding))
    }

    /// Enters the view of `selector` in this form.
    #[must_use]
    pub fn join_as(&self, selector: &Selector, rendition: Rendition) -> Entry {
        let cut = Cut::new(rendition, &self.kind);
        let mut state = self.state();
        state.seats = state.seats.wrapping_add(1);
        let (reached, spread) = (state.reached, state.seats);
        let wish = Wish { selector, cut };
        let view = Arc::clone(state.roster.enter(wish, self.kind.encoding));
        if state.closed {
            view.close();
        }
        Entry {
            cursor: view.head(),
            seat: view.seat(spread),
            view,
            reached,
        }
    }

    /// The place of a watcher who enters `view` again because it overran the batches: the first batch to read, and
    /// what those before it add up to. Its seat stays, and stays armed.
    #[must_use]
    pub fn place_in(&self, view: &View) -> (Sequence, Reached) {
        let state = self.state();
        (view.head(), state.reached)
    }

    /// How far the views have come.
    #[must_use]
    pub fn reached(&self) -> Reached {
        self.state().reached
    }

    /// A place among those who wait for the resource to reach a version.
    #[must_use]
    pub fn progress_seat(&self) -> Seat {
        self.progress.seat(0)
    }

    /// How bookmarks of the resource look.
    #[must_use]
    pub fn bookmark(&self) -> BookmarkShape {
        self.bookmark
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes the look of bookmarks from one that upstream sent.
    pub fn learn_bookmark(&self, shape: BookmarkShape) {
        *self
            .bookmark
            .write()
            .unwrap_or_else(PoisonError::into_inner) = shape;
    }

    /// Ends all watches, cleanly and between events, and those that still come.
    pub fn close(&self) {
        let views: Vec<_> = {
            let mut state = self.state();
            state.closed = true;
            state.roster.views().cloned().collect()
        };
        let mut scratch = Vec::new();
        for view in views {
            view.close();
            view.wake_all(&mut scratch);
        }
        self.progress.wake_all(&mut scratch);
    }

    /// True once [`Hub::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Whether any watch is open.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.state().roster.is_watched()
    }

    /// Views that have a watcher, or had one until lately.
    #[must_use]
    pub fn view_count(&self) -> usize {
        self.state().roster.views().len()
    }

    /// Lines laid out in views since this was asked last, for metrics: each is shared by all watchers of its view.
    #[must_use]
    pub fn take_laid_out(&self) -> u64 {
        std::mem::take(&mut self.state().laid_out)
    }
}

impl Observer for Hub {
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        through: Sequence,
        version: ResourceVersion,
        now: Instant,
    ) -> usize {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Turn { shown, wakers } = &mut *turn;
        {
            let mut state = self.state();
            state.reached = Reached { through, version };
            state.laid_out += state.roster.lay_out(events, now, shown) as u64;
        }
        let woken = shown.drain(..).map(|view| view.wake_all(wakers)).sum();
        self.progress.wake_all(wakers);
        woken
    }
}

/// A resource as it is served: its cache and its views.
#[derive(Clone, Debug)]
pub struct Served {
    /// Snapshot and history.
    pub cache: Arc<WatchCache>,
    /// The views on it.
    pub hub: Arc<Hub>,
}

#[cfg(test)]
mod tests;
