//! The views of one resource: who watches alike shares one, and each batch reaches every view once.

use std::sync::{Arc, PoisonError, RwLock, TryLockError};
use std::task::Waker;
use std::time::Instant;

mod directory;
mod view_table;

use super::bookmark::BookmarkTemplate;
use super::object_format::ObjectFormat;
use super::projection::Projection;
use super::selector::Selector;
use super::selector_index::{Hasher, TooManyViews};
use super::shared::{View, ViewCore};
use super::waiters::{WaiterList, WatchWaiter};
use crate::cache::{DispatchOutcome, Event, Mutex, MutexGuard, Observer, Sequence, WatchCache};
use crate::fairness::Peer;
use crate::resource::{ResourceKind, ResourceVersion};
use directory::{ViewDirectory, ViewKey, ViewRoom};
use view_table::ViewTable;

/// How far a resource's views have come. All of it moves together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HubPosition {
    /// Events with a lower sequence are in the views.
    pub through: Sequence,
    /// The version that comes with it: bookmarks may speak of it once its events are delivered.
    pub version: ResourceVersion,
}

/// Where a watcher enters a view: history below `reached.through`, then the view's batches from `cursor` on. The first of
/// them may hold events from below `reached.through` once more.
#[derive(Debug)]
pub struct ViewSubscription {
    /// The shared view.
    pub view: Arc<View>,
    /// The first batch to read.
    pub cursor: Sequence,
    /// How far the history has to be read. Batches before `cursor` hold nothing beyond it.
    pub reached: HubPosition,
    /// The watcher's place among those who wait for batches.
    pub waiter: WatchWaiter,
}

/// The right to dispatch, one batch at a time, and what that takes.
#[derive(Debug)]
struct DispatchState {
    roster: ViewTable,
    /// Views that show something of the batch.
    shown: Vec<Arc<ViewCore>>,
    wakers: Vec<Waker>,
}

/// All views of one resource.
///
/// Joining takes the directory's lock, dispatching its turn, and the directory's lock only to begin and to end. So nobody who
/// joins waits while selectors are evaluated. Why none of the watchers who join meanwhile misses an event: before the first event is
/// looked at, the directory says that history is to be read up to the batch's end. Who joined before that gets the batch
/// from the view, because the view was taken in then; who joins later reads it in the history, and passes over the
/// batch should the view still get it. There is a loom model of this.
#[derive(Debug)]
pub struct Hub {
    kind: ResourceKind,
    directory: Mutex<ViewDirectory>,
    /// Taken before the directory. Joining only tries to take it.
    turn: Mutex<DispatchState>,
    /// Woken when the resource reaches a new version.
    progress: Arc<WaiterList>,
    bookmark: RwLock<BookmarkTemplate>,
}

impl Hub {
    /// A hub without views.
    #[must_use]
    pub fn new(kind: &ResourceKind) -> Self {
        let hasher = Hasher::default();
        Self {
            kind: kind.clone(),
            directory: Mutex::new(ViewDirectory::new(&hasher)),
            turn: Mutex::new(DispatchState {
                roster: ViewTable::new(hasher),
                shown: Vec::new(),
                wakers: Vec::new(),
            }),
            progress: Arc::default(),
            bookmark: RwLock::new(BookmarkTemplate::guessed(kind)),
        }
    }

    fn directory(&self) -> MutexGuard<'_, ViewDirectory> {
        // Nothing under this lock panics halfway.
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the view of whole objects that `selector` lets pass, which is made if nobody has it, whatever it costs.
    #[must_use]
    pub fn join(&self, selector: &Selector) -> ViewSubscription {
        let rendition = ObjectFormat::whole(self.kind.encoding);
        let entered = self.enter(selector, rendition, ViewRoom::Unbounded);
        #[expect(clippy::expect_used, reason = "nothing is refused without a bound")]
        entered.expect("there is room for everything")
    }

    /// Enters the view of `selector` in this form, for the client `peer`.
    ///
    /// # Errors
    /// [`TooManyViews`] if the view would be new, and its selector costs more than the views that are open leave to this client.
    pub fn join_as(
        &self,
        selector: &Selector,
        rendition: ObjectFormat,
        peer: Peer,
    ) -> Result<ViewSubscription, TooManyViews> {
        self.enter(selector, rendition, ViewRoom::Bounded(peer))
    }

    fn enter(
        &self,
        selector: &Selector,
        rendition: ObjectFormat,
        room: ViewRoom,
    ) -> Result<ViewSubscription, TooManyViews> {
        let cut = Projection::new(rendition, &self.kind);
        let wish = ViewKey { selector, cut };
        let entry = {
            let mut directory = self.directory();
            let view = directory.enter(wish, self.kind.encoding, room)?;
            directory.waiters = directory.waiters.wrapping_add(1);
            if directory.closed {
                view.close();
            }
            ViewSubscription {
                cursor: view.head(),
                waiter: view.waiter(directory.waiters),
                view,
                reached: directory.published,
            }
        };
        self.settle();
        Ok(entry)
    }

    /// Takes new views in while nothing is dispatched, so that those that come and go on a quiet resource do not gather. The
    /// next dispatch does it otherwise.
    fn settle(&self) {
        let mut turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let changes = self.directory().take_changes();
        if !changes.is_empty() {
            turn.roster.settle(changes);
        }
    }

    /// The place of a watcher who enters `view` again because it overran the batches: the first batch to read, and how far
    /// the history has to be read before. Its seat stays, and stays armed.
    #[must_use]
    pub fn place_in(&self, view: &View) -> (Sequence, HubPosition) {
        let directory = self.directory();
        (view.head(), directory.published)
    }

    /// How far the views have come.
    #[must_use]
    pub fn reached(&self) -> HubPosition {
        self.directory().reached
    }

    /// A place among those who wait for the resource to reach a version.
    #[must_use]
    pub fn progress_waiter(&self) -> WatchWaiter {
        self.progress.waiter(0)
    }

    /// How bookmarks of the resource look.
    #[must_use]
    pub fn bookmark(&self) -> BookmarkTemplate {
        self.bookmark
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes the look of bookmarks from one that upstream sent.
    pub fn learn_bookmark(&self, shape: BookmarkTemplate) {
        *self
            .bookmark
            .write()
            .unwrap_or_else(PoisonError::into_inner) = shape;
    }

    /// Ends all watches, cleanly and between events, and those that still come.
    pub fn close(&self) {
        let views: Vec<_> = {
            let mut directory = self.directory();
            directory.closed = true;
            directory.views().cloned().collect()
        };
        let mut scratch = Vec::new();
        for view in views {
            view.close();
            view.wake_all(&mut scratch);
        }
        self.progress.wake_all(&mut scratch);
    }

    /// Ends all watches as [`Hub::close`] does, and tells them to list again: no version that they know means anything.
    pub fn expire(&self) {
        self.directory().expired = true;
        self.close();
    }

    /// True once [`Hub::expire`] was called.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.directory().expired
    }

    /// True once [`Hub::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.directory().closed
    }

    /// Holds up everything that needs the directory.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.directory()
    }

    /// Whether any watch is open.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.directory().view_count() > 0
    }

    /// Views that have a watcher and can be entered.
    #[must_use]
    pub fn view_count(&self) -> usize {
        self.directory().view_count()
    }

    /// Lines laid out in views since this was asked last, for metrics: each is shared by all watchers of its view.
    #[must_use]
    pub fn take_laid_out(&self) -> u64 {
        std::mem::take(&mut self.directory().laid_out)
    }
}

impl Observer for Hub {
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        through: Sequence,
        version: ResourceVersion,
        now: Instant,
    ) -> DispatchOutcome {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let DispatchState {
            roster,
            shown,
            wakers,
        } = &mut *turn;
        let changes = {
            let mut directory = self.directory();
            directory.published = HubPosition { through, version };
            directory.take_changes()
        };
        roster.settle(changes);
        let laid_out = roster.lay_out(events, now, shown);
        let closed = shown.iter().filter(|core| core.is_closed());
        let closed: Vec<_> = closed.cloned().collect();
        {
            let mut directory = self.directory();
            closed.iter().for_each(|core| directory.forget(core));
            directory.laid_out += laid_out.lines as u64;
            match events.get(laid_out.events) {
                None => directory.reached = HubPosition { through, version },
                // Nobody may be told of a version before all of its events.
                Some(next) => directory.reached.through = next.sequence(),
            }
        }
        let woken = shown.drain(..).map(|core| core.wake_all(wakers)).sum();
        self.progress.wake_all(wakers);
        DispatchOutcome {
            events: laid_out.events,
            woken,
        }
    }
}

/// A resource as it is served: its cache and its views.
#[derive(Clone, Debug)]
pub struct ServedResource {
    /// Snapshot and history.
    pub cache: Arc<WatchCache>,
    /// The views on it.
    pub hub: Arc<Hub>,
}

#[cfg(all(test, fanout_loom))]
mod models;
#[cfg(test)]
mod tests;
