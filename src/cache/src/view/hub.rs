//! The views of one resource: watches with the same parameters share a view, and each batch reaches every view once.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

mod directory;
mod position;
mod view_table;

use super::bookmark::BookmarkTemplate;
use super::end_schedule::EndSchedule;
use super::object_format::ObjectFormat;
use super::projection::Projection;
use super::selector_index::{Hasher, TooManyViews};
use super::shared::{View, ViewCore};
use super::waiters::{WaiterList, WatchWaiter};
use crate::cache::{DispatchOutcome, Event, Observer, Sequence, WatchCache};
use crate::fairness::Peer;
use crate::resource::{ResourceKind, ResourceVersion};
use crate::selector::Selector;
use crate::sync::{Mutex, MutexGuard};
use directory::{ViewDirectory, ViewKey, ViewRoom};
use parking_lot::RwLock;
pub use position::HubPosition;
use view_table::ViewTable;

/// Where a watch starts in a view: it reads the history below `reached.through`, then the view's batches from `cursor` on. The
/// first of them may repeat events from below `reached.through`.
#[derive(Debug)]
pub struct ViewSubscription {
    /// The shared view.
    pub view: Arc<View>,
    /// The first batch to read.
    pub cursor: Sequence,
    /// How far the history has to be read. Batches before `cursor` have no later events.
    pub reached: HubPosition,
    /// The watch's waiter for the view's batches.
    pub waiter: WatchWaiter,
}

/// The state that a dispatch needs. Its lock allows one dispatch at a time.
#[derive(Debug)]
struct DispatchState {
    view_table: ViewTable,
    /// The views that show events of the batch.
    shown: Vec<Arc<ViewCore>>,
    wakers: Vec<Waker>,
}

/// All views of one resource.
///
/// Joining takes the directory's lock. Dispatching takes the lock of the dispatch state for its whole duration, and the directory's
/// lock only at its beginning and its end. So joining never waits while selectors are evaluated.
///
/// A watch that joins during a dispatch misses no event. Before the first event is evaluated, the dispatch takes the directory's
/// lock. Under that lock it records that new watches have to read the history up to the end of the batch, and it takes the views
/// that are new, which it then adds to the view table. A watch that joined before that gets the batch from its view, because the
/// table has the view when the events are evaluated. A watch that joins later reads the batch in the history, and ignores it in
/// the view if the view shows it, too. A loom model checks this.
#[derive(Debug)]
pub struct Hub {
    kind: ResourceKind,
    directory: Mutex<ViewDirectory>,
    /// Locked before the directory. Joining only tries to lock it.
    dispatch_state: Mutex<DispatchState>,
    /// Waiters for the resource to reach a new version.
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
            dispatch_state: Mutex::new(DispatchState {
                view_table: ViewTable::new(hasher),
                shown: Vec::new(),
                wakers: Vec::new(),
            }),
            progress: Arc::default(),
            bookmark: RwLock::new(BookmarkTemplate::guessed(kind)),
        }
    }

    fn directory(&self) -> MutexGuard<'_, ViewDirectory> {
        // Nothing that holds this lock panics in the middle of a change.
        self.directory.lock()
    }

    /// Joins the view of whole objects with this selector. The view is created if there is none, whatever it costs.
    #[must_use]
    pub fn join(&self, selector: &Selector) -> ViewSubscription {
        let format = ObjectFormat::whole(self.kind.encoding);
        let joined = self.enter(selector, format, ViewRoom::Unbounded);
        #[expect(clippy::expect_used, reason = "without a bound nothing is refused")]
        joined.expect("an unbounded join is never refused")
    }

    /// Joins the view of this selector and form, for the client `peer`.
    ///
    /// # Errors
    /// [`TooManyViews`] if the view would be new, and its selector costs more than the open views leave to this client; or if the hub was
    /// closed because nobody watched, so that it has room for none.
    pub fn join_as(
        &self,
        selector: &Selector,
        format: ObjectFormat,
        peer: Peer,
    ) -> Result<ViewSubscription, TooManyViews> {
        self.enter(selector, format, ViewRoom::Bounded(peer))
    }

    fn enter(
        &self,
        selector: &Selector,
        format: ObjectFormat,
        room: ViewRoom,
    ) -> Result<ViewSubscription, TooManyViews> {
        let projection = Projection::new(format, &self.kind);
        let key = ViewKey {
            selector,
            projection,
        };
        let subscription = {
            let mut directory = self.directory();
            if directory.abandoned && room != ViewRoom::Unbounded {
                return Err(TooManyViews);
            }
            let view = directory.enter(key, self.kind.encoding, room)?;
            directory.waiters = directory.waiters.wrapping_add(1);
            if directory.closed {
                view.close();
            }
            if let Some(schedule) = &directory.end_schedule {
                view.schedule_end(schedule);
            }
            ViewSubscription {
                cursor: view.head(),
                waiter: view.waiter(directory.waiters),
                view,
                reached: directory.published,
            }
        };
        self.apply_changes();
        Ok(subscription)
    }

    /// Takes new views into the view table, and removes unwatched ones, if no dispatch is running. Otherwise the next dispatch does so.
    /// This keeps views that come and go on a quiet resource from accumulating.
    fn apply_changes(&self) {
        let Some(mut dispatch_state) = self.dispatch_state.try_lock() else {
            return;
        };
        let changes = self.directory().take_changes();
        if !changes.is_empty() {
            dispatch_state.view_table.apply_changes(changes);
        }
    }

    /// The position of a watch that joins `view` again because it fell out of the batches: the first batch to read, and how far the
    /// history has to be read before. The watch keeps its waiter, which stays armed.
    #[must_use]
    pub fn place_in(&self, view: &View) -> (Sequence, HubPosition) {
        let directory = self.directory();
        (view.head(), directory.published)
    }

    /// How far the views have got.
    #[must_use]
    pub fn reached(&self) -> HubPosition {
        self.directory().reached
    }

    /// A waiter for the resource to reach a new version.
    #[must_use]
    pub fn progress_waiter(&self) -> WatchWaiter {
        self.progress.waiter(0)
    }

    /// The template of the resource's bookmarks.
    #[must_use]
    pub fn bookmark(&self) -> BookmarkTemplate {
        self.bookmark.read().clone()
    }

    /// Replaces the template of bookmarks with one taken from a bookmark that upstream sent.
    pub fn learn_bookmark(&self, template: BookmarkTemplate) {
        *self.bookmark.write() = template;
    }

    /// Ends all watches cleanly between events, and every watch that joins later.
    pub fn close(&self) {
        let views: Vec<_> = {
            let mut directory = self.directory();
            directory.closed = true;
            directory.views().cloned().collect()
        };
        self.tell(&views, ViewCore::close);
    }

    /// Closes the hub unless it is watched; returns whether it is closed. Under the lock that joining takes: a watch either keeps the cache, or
    /// finds no room in it and is forwarded, but none joins only to be ended.
    #[must_use]
    pub fn close_unwatched(&self) -> bool {
        {
            let mut directory = self.directory();
            if directory.view_count() > 0 {
                return false;
            }
            directory.closed = true;
            directory.abandoned = true;
        }
        // Lists may wait for a version.
        self.tell(&[], ViewCore::close);
        true
    }

    /// Ends each watch at a time that it draws from the schedule, once its client has all events; also each watch that joins later. Events
    /// go on reaching the watches until then.
    pub fn schedule_end(&self, schedule: &Arc<EndSchedule>) {
        let views: Vec<_> = {
            let mut directory = self.directory();
            directory.end_schedule = Some(Arc::clone(schedule));
            directory.views().cloned().collect()
        };
        self.tell(&views, |view| view.schedule_end(schedule));
    }

    /// Changes these views, and wakes all watches.
    fn tell(&self, views: &[Arc<ViewCore>], change: impl Fn(&ViewCore)) {
        let mut scratch = Vec::new();
        for view in views {
            change(view);
            view.wake_all(&mut scratch);
        }
        self.progress.wake_all(&mut scratch);
    }

    /// Ends all watches as [`Hub::close`] does, and makes them list again, because no version that they have is valid any more.
    pub fn expire(&self) {
        self.directory().expired = true;
        self.close();
    }

    /// Whether [`Hub::expire`] was called.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.directory().expired
    }

    /// Whether [`Hub::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.directory().closed
    }

    /// Blocks everything that needs the directory.
    #[cfg(any(test, feature = "testing"))]
    pub fn hold(&self) -> impl Drop + '_ {
        self.directory()
    }

    /// Bytes of the events that are laid out for watches.
    #[must_use]
    pub fn frames_len(&self) -> usize {
        self.dispatch_state.lock().view_table.frames_len()
    }

    /// Keeps fewer events laid out while memory `is_short`. Watches that need others read the history.
    pub fn bound_frames(&self, is_short: bool, now: Instant) {
        self.dispatch_state.lock().view_table.bound(is_short, now);
    }

    /// Whether any watch is open.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.directory().view_count() > 0
    }

    /// Number of views that have a watch and can be joined.
    #[must_use]
    pub fn view_count(&self) -> usize {
        self.directory().view_count()
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
        let mut dispatch_state = self.dispatch_state.lock();
        let DispatchState {
            view_table,
            shown,
            wakers,
        } = &mut *dispatch_state;
        let changes = {
            let mut directory = self.directory();
            directory.published = HubPosition { through, version };
            directory.take_changes()
        };
        view_table.apply_changes(changes);
        let laid_out = view_table.lay_out(events, now, shown);
        let closed: Vec<_> = shown
            .iter()
            .filter(|core| core.is_closed())
            .cloned()
            .collect();
        {
            let mut directory = self.directory();
            closed.iter().for_each(|core| directory.forget(core));
            match events.get(laid_out.events) {
                None => directory.reached = HubPosition { through, version },
                // No watch may receive a version before all of its events.
                Some(next) => directory.reached.through = next.sequence(),
            }
        }
        let woken = shown.drain(..).map(|core| core.wake_all(wakers)).sum();
        self.progress.wake_all(wakers);
        DispatchOutcome {
            events: laid_out.events,
            woken,
            frames: laid_out.lines,
        }
    }
}

/// A resource that the gateway serves: its cache and its views.
#[derive(Clone, Debug)]
pub struct ServedResource {
    /// Snapshot and history.
    pub cache: Arc<WatchCache>,
    /// The resource's views.
    pub hub: Arc<Hub>,
}

#[cfg(all(test, feature = "loom"))]
mod models;
#[cfg(test)]
mod tests;
