//! The position of one client in its watch. Reads the snapshot, the history and the shared view, in this order. Has no socket and
//! no timer: [`Watch`](super::Watch) or a delivery worker drives it.

mod encoding;
mod ends;
mod step;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use tokio::time::Instant;

use super::compression::WatchCompression;
use super::first_events::{FirstEvents, FirstEventsError};
use super::guards::WatchGuards;
use super::initial::FirstFrame;
use super::lifetime::WatchLifetime;
use super::limits::{FRAMES, FrameLimits};
use super::progress::ReadStage;
use super::recorder::{OldestArrivals, WatchRecorder};
use super::start::{Start, Timing};
use super::table::{RegistrationRequest, TableRegistration, WatchClient, WatchTable};
use crate::admission::{ListPermit, WatchPermit};
use crate::cache::{Epoch, Sequence};
use crate::metrics::WatchEnd;
use crate::protocol::BufList;
use crate::resource::ResourceVersion;
use crate::selector::Selector;
use crate::view::{Marker, ServedResource, View, ViewSubscription, WatchWaiter, filtered};
use step::EventsStep;
pub(crate) use step::{CursorStep, SharedBatches, TimerAction};

/// The position of one client in its watch.
#[derive(Debug)]
pub(crate) struct WatchCursor {
    served: ServedResource,
    recorder: Arc<dyn WatchRecorder>,
    pub(super) limits: &'static FrameLimits,
    view: Arc<View>,
    /// The next batch of the view to read.
    cursor: Sequence,
    before_history: Option<BeforeHistory>,
    /// The next event to consider: earlier ones are delivered or not meant for this client.
    position: Sequence,
    /// End of the events that are read from the history; later ones are read from the view's batches.
    history_end: Sequence,
    /// The version that the client has; events up to it are not sent.
    pub(super) known: ResourceVersion,
    sent: SentEvents,
    /// `None` for a client that gets events as they are.
    compression: Option<Box<WatchCompression>>,
    pub(super) lifetime: WatchLifetime,
    /// In a place of its own: shared events do not need it.
    pub(super) guards: Box<WatchGuards>,
    /// The place in the table of open watches.
    pub(super) place: Option<TableRegistration>,
}

/// What comes before the events of the history.
#[derive(Debug)]
enum BeforeHistory {
    /// The client's version is still in the future: until it is reached, nothing is sent. A relist may skip the version.
    /// Then the published difference lacks what this client needs: objects that were created and deleted since the last served
    /// version.
    Future(Box<WatchWaiter>),
    /// Initial events or a catch-up.
    First(FirstEvents),
}

/// What the client was sent.
#[derive(Debug)]
struct SentEvents {
    /// The version of the last event that was read. It may be newer than the version that the views have reached: a batch is visible before
    /// that, and one of many events is laid out in slices.
    version: ResourceVersion,
    events: u64,
    bytes: u64,
}

impl WatchCursor {
    /// The cursor of a client that has joined a view. `start` was determined afterwards.
    pub(super) fn new(
        served: ServedResource,
        subscription: &ViewSubscription,
        start: Start,
        timing: Timing,
        recorder: Arc<dyn WatchRecorder>,
    ) -> Self {
        let reached = subscription.reached;
        let (initial, position, known) = FirstEvents::of(start, timing.bookmarks);
        recorder.started();
        if matches!(initial, Some(FirstEvents::CatchUp(_))) {
            recorder.caught_up();
        }
        let before_history = match initial {
            Some(first) => Some(BeforeHistory::First(first)),
            None if known > reached.version => Some(BeforeHistory::Future(Box::new(
                served.hub.progress_waiter(),
            ))),
            None => None,
        };
        Self {
            served,
            recorder,
            limits: &FRAMES,
            view: Arc::clone(&subscription.view),
            cursor: subscription.cursor,
            before_history,
            position,
            history_end: reached.through,
            known,
            sent: SentEvents {
                version: known,
                events: 0,
                bytes: 0,
            },
            compression: None,
            lifetime: WatchLifetime::new(timing, known),
            guards: Box::default(),
            place: None,
        }
    }

    /// Holds the permit of the watch until it ends, and the permit of its initial events until these are sent.
    pub(super) fn hold_permits(&mut self, watch: Option<WatchPermit>, list: Option<ListPermit>) {
        self.guards.permit = watch;
        if let Some(BeforeHistory::First(first)) = &mut self.before_history {
            first.hold(list);
        }
    }

    /// Enters the table of open watches.
    pub(super) fn enter(&mut self, table: &Arc<WatchTable>, client: WatchClient) {
        let new = RegistrationRequest {
            client,
            served: self.served.clone(),
            view: Arc::clone(&self.view),
            position: (self.cursor, self.stage()),
            opened_at: self.lifetime.opened_at,
        };
        self.place = Some(TableRegistration::enter(table, new));
    }

    /// From where the next event is read.
    fn stage(&self) -> ReadStage {
        if self.is_future() {
            ReadStage::Future
        } else if self.is_initial() {
            ReadStage::Initial(self.position)
        } else if self.position < self.history_end {
            ReadStage::History(self.position)
        } else {
            ReadStage::View
        }
    }

    pub(super) fn epoch(&self) -> Option<Epoch> {
        let snapshot = self.served.cache.snapshot()?;
        Some(snapshot.epoch)
    }

    fn is_future(&self) -> bool {
        matches!(self.before_history, Some(BeforeHistory::Future(_)))
    }

    /// Shows those who look at the table where the cursor is. Call it when the connection has taken all that was read so far. Three plain
    /// stores.
    pub(crate) fn note_taken(&self) {
        if let Some(place) = &self.place {
            place.note(self.cursor, self.stage(), self.sent.bytes);
        }
    }

    /// The view, which all watches with the same parameters share.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The recorder of what is delivered.
    pub(crate) fn recorder(&self) -> &Arc<dyn WatchRecorder> {
        &self.recorder
    }

    /// The next batch of the view that this client needs.
    pub(crate) fn cursor(&self) -> Sequence {
        self.cursor
    }

    /// Whether batches from `from` on are next for this client and all of their events are new to it. Their first event is `first`,
    /// at `first_version`.
    pub(crate) fn can_take(
        &self,
        from: Sequence,
        first: Sequence,
        first_version: ResourceVersion,
    ) -> bool {
        self.cursor == from
            && self.position <= first
            && self.known < first_version
            && self.history_end <= self.position.max(first)
            && self.before_history.is_none()
            && self.lifetime.end.is_none()
    }

    /// Moves on before shared batches are sent. The caller counts events and bytes, and calls [`Self::note_taken`].
    pub(crate) fn advance(&mut self, batches: SharedBatches) {
        self.cursor = batches.to;
        self.position = batches.last + 1;
        self.sent.version = self.sent.version.max(batches.last_version);
        self.sent.events += batches.events;
        self.sent.bytes += batches.bytes;
    }

    /// Whether initial events are still to be sent.
    pub(crate) fn is_initial(&self) -> bool {
        matches!(&self.before_history, Some(BeforeHistory::First(first)) if !first.is_done())
    }

    /// Whether the stream has ended, and all of it has been returned.
    pub(crate) fn is_over(&self) -> bool {
        let compression = self.compression.as_ref();
        self.lifetime.end.is_some() && !compression.is_some_and(|it| it.is_open())
    }

    /// Ends the stream. The first reason counts.
    pub(super) fn end_as(&mut self, end: WatchEnd) {
        self.lifetime.end.get_or_insert(end);
    }

    /// Wakes `waker` when the permission is revoked, or the permit is taken back.
    pub(crate) fn arm_lease(&mut self, waker: &Waker) {
        self.guards.arm(waker);
    }

    /// Ends the stream if its permission was revoked, or its permit was taken back; returns whether one was. Arm first, so that nothing is
    /// missed in between.
    pub(crate) fn is_revoked(&mut self) -> bool {
        let revocation = self.guards.revocation();
        if let Some(end) = revocation {
            self.end_as(end);
        }
        revocation.is_some()
    }

    /// Ends the stream because its view is closed, with a 410 event if the client must list again.
    fn close(&mut self) -> CursorStep {
        self.end_as(WatchEnd::CacheGone);
        if self.served.hub.is_expired() {
            CursorStep::Frame(self.expired_event())
        } else {
            CursorStep::Over
        }
    }

    /// The time to call [`Self::on_timer`]: the next bookmark, the scheduled end or the deadline.
    pub(crate) fn wake_at(&self) -> Instant {
        self.lifetime.wake_at()
    }

    /// Draws the time of the end if the view has a schedule and the cursor has no time yet.
    pub(crate) fn schedule_end(&mut self) {
        if self.lifetime.end_at.is_none()
            && let Some(schedule) = self.view.end_schedule()
        {
            self.lifetime.end_at = Some((Instant::from_std(schedule.draw()), WatchEnd::CacheGone));
        }
    }

    /// Sets the time of the end, unless the stream ends earlier in any case.
    pub(super) fn ended_at(&mut self, at: Instant, end: WatchEnd) {
        let end_at = &mut self.lifetime.end_at;
        if end_at.is_none_or(|(earlier, _)| at < earlier) {
            *end_at = Some((at, end));
        }
    }

    /// Ends the stream if its deadline is reached; returns whether it is.
    pub(crate) fn is_overdue(&mut self, now: Instant) -> bool {
        let is_overdue = now >= self.lifetime.deadline;
        if is_overdue {
            self.end_as(WatchEnd::Timeout);
        }
        is_overdue
    }

    /// Does what is due at `now`.
    pub(crate) fn on_timer(&mut self, now: Instant) -> TimerAction {
        if self.is_overdue(now) {
            return TimerAction::Ended;
        }
        if let Some(end) = self.lifetime.due_end(now) {
            return self.end_scheduled(end);
        }
        match self.bookmark(now) {
            Some(bookmark) => TimerAction::Bookmark(self.encoded(bookmark.into())),
            None => TimerAction::Nothing,
        }
    }

    /// Ends the stream, with a last bookmark if the client allows bookmarks. If the client does not have all events yet, they come first.
    fn end_scheduled(&mut self, end: WatchEnd) -> TimerAction {
        let mut bookmark = None;
        if !self.is_future() {
            let Some(reached) = self.prove() else {
                return TimerAction::Nothing;
            };
            // Within a burst, the client may have events that are newer.
            bookmark = self.bookmark_at(reached.max(self.sent.version));
        }
        self.end_as(end);
        match bookmark {
            Some(bookmark) => TimerAction::Bookmark(self.encoded(bookmark.into())),
            None => TimerAction::Ended,
        }
    }

    /// If the client's version is still in the future, wakes `waker` when it is reached, because that may happen without a batch.
    /// Call [`Self::next`] once more afterwards.
    pub(crate) fn arm(&self, waker: &Waker) {
        if let Some(BeforeHistory::Future(waiter)) = &self.before_history {
            waiter.arm(waker);
        }
    }

    fn selector(&self) -> &Selector {
        self.view.selector()
    }

    fn next_events(&mut self) -> EventsStep {
        self.note_taken();
        if self.lifetime.end.is_some() {
            return CursorStep::Over.into();
        }
        self.schedule_end();
        // Check before reading, so that events published before the view was closed are still sent.
        let is_closed = self.view.is_closed();
        let next = match self.read_next() {
            EventsStep::Step(next) => next,
            block @ EventsStep::Block(_) => return block,
        };
        if !matches!(next, CursorStep::Frame(_)) {
            // Events that are not for this client count as taken once they are read.
            self.note_taken();
        }
        if is_closed && matches!(next, CursorStep::Nothing) && !self.waits_for_block() {
            return self.close().into();
        }
        next.into()
    }

    fn read_next(&mut self) -> EventsStep {
        if self.is_future() {
            match self.reach_version() {
                Ok(true) => {}
                Ok(false) => return CursorStep::Nothing.into(),
                Err(error) => return CursorStep::Frame(error).into(),
            }
        }
        loop {
            if let Some(BeforeHistory::First(first)) = &mut self.before_history {
                match first.next_frame(&self.view, &self.served, self.limits) {
                    Ok(FirstFrame::Events(buf, count)) => {
                        return self.record_frame(buf, count).into();
                    }
                    Ok(FirstFrame::Block(block, count)) => {
                        self.record(count, block.len);
                        return EventsStep::Block(block);
                    }
                    Ok(FirstFrame::Waits) => return CursorStep::Nothing.into(),
                    Ok(FirstFrame::Nothing) if first.is_done() => self.before_history = None,
                    Ok(FirstFrame::Nothing) => return CursorStep::Unfinished.into(),
                    Err(FirstEventsError::Unprojectable) => {
                        return self.end_unprojectable().into();
                    }
                    Err(FirstEventsError::Expired) => {
                        return CursorStep::Frame(self.end_lagged()).into();
                    }
                }
            }
            if self.position < self.history_end
                && let Some(next) = self.read_history()
            {
                return next.into();
            }
            if let Some(next) = self.read_batches() {
                return next.into();
            }
        }
    }

    /// Whether the client's version has been reached. If not, [`Self::arm`] sets the waker for it.
    ///
    /// # Errors
    /// The client's last event, if the history after its version is not known.
    fn reach_version(&mut self) -> Result<bool, BufList> {
        // A version that has been reached is in the snapshot, including the gaps in its history.
        if self.served.hub.reached().version < self.known {
            return Ok(false);
        }
        let Ok(sequence) = self.served.cache.resume_after(self.known) else {
            return Err(self.end_lagged());
        };
        self.position = self.position.max(sequence);
        self.before_history = None;
        Ok(true)
    }

    /// Reads events from the history for this client alone. `None` once it is where the view continues.
    fn read_history(&mut self) -> Option<CursorStep> {
        let (mut buf, mut count, mut cost) = (BufList::default(), 0, 0);
        let (known, limits) = (self.known, self.limits);
        let (opened_at, mut late) = (self.lifetime.opened_at, OldestArrivals::default());
        let range = self.position..self.history_end;
        let (view, mut unprojectable) = (&self.view, None);
        let mut delivered = self.sent.version;
        let read = filtered(
            self.served.cache.history(),
            self.selector(),
            range,
            |event, kind| {
                let kind = kind.filter(|_| !event.is_covered_by(known));
                cost += view.cost(event.object().frame_len(), kind.is_some());
                if let Some(kind) = kind {
                    let Ok(frame) = view.frame(event, kind) else {
                        unprojectable = Some(event.sequence());
                        return ControlFlow::Break(());
                    };
                    buf.push(frame);
                    count += 1;
                    delivered = delivered.max(event.resource_version());
                    if event.arrived_at() >= opened_at {
                        late.add(event.arrival());
                    }
                }
                if limits.are_reached(&buf, cost) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        self.sent.version = delivered;
        match read {
            Ok(next) => self.position = unprojectable.unwrap_or(next),
            Err(_) => return Some(self.end_behind()),
        }
        late.record(&*self.recorder, || Instant::now().into_std());
        if !buf.is_empty() {
            return Some(self.record_frame(buf, count));
        }
        if unprojectable.is_some() {
            // 410 and not a plain end: a client that resumed here would reach the same event again. After a new list it resumes
            // behind it.
            return Some(CursorStep::Frame(self.end_lagged()));
        }
        (self.position < self.history_end).then_some(CursorStep::Unfinished)
    }

    /// Reads the batches of the shared view. `None` if the history has to be read first.
    fn read_batches(&mut self) -> Option<CursorStep> {
        let (mut buf, mut count) = (BufList::default(), 0);
        let (mut position, mut reread_end) = (self.position, None);
        let (known, recorder, limits) = (self.known, &self.recorder, self.limits);
        let (mut now, mut delivered) = (None, self.sent.version);
        let read = self.view.read(self.cursor, |batch| {
            // Events of the client's own version may continue it, which the history tells.
            if batch.last < position || batch.last_version < known {
                return ControlFlow::Continue(());
            }
            if batch.first < position || batch.first_version <= known {
                // The client already has a part of this batch, so read its events one by one from the history. Earlier events do
                // not match the view, however long ago its last batch was published.
                position = position.max(batch.first);
                reread_end = Some(batch.last + 1);
                return ControlFlow::Break(());
            }
            position = batch.last + 1;
            delivered = delivered.max(batch.last_version);
            count += batch.count;
            buf.push(batch.frames.clone());
            let now = *now.get_or_insert_with(|| Instant::now().into_std());
            recorder.late(batch.arrival, now, 1);
            if limits.are_reached(&buf, 0) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        match read {
            Ok(cursor) => self.cursor = cursor,
            Err(_) => {
                // The view keeps few batches; the history may still have the events.
                self.rejoin();
                return None;
            }
        }
        (self.position, self.sent.version) = (position, delivered);
        if let Some(end) = reread_end {
            self.history_end = end;
        }
        match (buf.is_empty(), reread_end) {
            (false, _) => Some(self.record_frame(buf, count as u64)),
            (true, Some(_)) => None,
            (true, None) => Some(CursorStep::Nothing),
        }
    }

    /// Continues after missed batches: with the history from the first missing batch on, then with the view again.
    fn rejoin(&mut self) {
        // All matching events before that batch were in earlier batches, so start there. Otherwise a client whose selector rarely
        // matches would start at its last event, which may have left the history long ago.
        if let Some(first) = self.view.first_of(self.cursor) {
            self.position = self.position.max(first);
        }
        let (cursor, reached) = self.served.hub.place_in(&self.view);
        self.cursor = cursor;
        self.history_end = reached.through;
    }

    fn record_frame(&mut self, buf: BufList, events: u64) -> CursorStep {
        self.record(events, buf.len() as u64);
        CursorStep::Frame(buf)
    }

    fn record(&mut self, events: u64, bytes: u64) {
        self.sent.events += events;
        self.sent.bytes += bytes;
        self.recorder.delivered(events, bytes);
    }

    /// A bookmark, if one is due and the client has all events up to its version.
    fn bookmark(&mut self, now: Instant) -> Option<Bytes> {
        let deadline = self.lifetime.deadline;
        if self.is_future() {
            self.lifetime.bookmarks.as_mut()?.wait(now, deadline);
            return None;
        }
        let bookmarks = self.lifetime.bookmarks.as_ref();
        let due = bookmarks.is_some_and(|bookmarks| bookmarks.next_at <= now);
        let reached = self.prove()?;
        self.lifetime
            .bookmarks
            .as_mut()
            .filter(|_| due)?
            .wait(now, deadline);
        self.bookmark_at(reached)
    }

    /// The newest version up to which the client has all events; `None` if there are events that it does not have.
    pub(super) fn prove(&mut self) -> Option<ResourceVersion> {
        // Read the version first: its events are in the view by then.
        let reached = self.served.hub.reached();
        if self.before_history.is_some()
            || self.position < self.history_end
            || self.view.head() > self.cursor
            // Events up to the version may include one that the view could not project.
            || self.view.is_closed()
        {
            return None;
        }
        self.position = self.position.max(reached.through);
        self.history_end = self.position;
        Some(reached.version)
    }

    /// A bookmark of this version, if the client allows bookmarks and has no newer version, neither from the start nor from an event.
    fn bookmark_at(&self, version: ResourceVersion) -> Option<Bytes> {
        let bookmarks = self.lifetime.bookmarks.as_ref()?;
        if version <= bookmarks.beyond || version < self.sent.version {
            return None;
        }
        let template = self.served.hub.bookmark();
        let bookmark = self.view.bookmark(&template, version, Marker::None);
        // If the bookmark cannot be projected, send none.
        bookmark.ok()
    }
}
