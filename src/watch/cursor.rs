//! One client's place in what it watches: fed from the snapshot, the history and the shared view, in this order. Holds no
//! socket and no timer: whoever drives it has those.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::bookmarks::BookmarkSchedule;
use super::initial::InitialEvents;
use super::{FRAMES, FrameLimits, Start, Timing, WatchEnd, WatchRecorder, WatchTotals};
use crate::admission::{ListPermit, WatchPermit};
use crate::audit::AuditTrail;
use crate::auth::lease::LeaseHold;
use crate::cache::Sequence;
use crate::protocol::BufList;
use crate::protocol::status::Status;
use crate::resource::ResourceVersion;
use crate::view::selector::Selector;
use crate::view::{HubPosition, Marker, ServedResource, View, WatchWaiter, filtered};

/// One client's place.
#[derive(Debug)]
pub(crate) struct WatchCursor {
    served: ServedResource,
    tally: Arc<dyn WatchRecorder>,
    pub(super) limits: &'static FrameLimits,
    view: Arc<View>,
    /// The next of the view's batches.
    cursor: Sequence,
    initial: Option<InitialEvents>,
    /// Events below are delivered or not for this client.
    position: Sequence,
    /// Up to here the history is read; from here on the view's batches.
    history_end: Sequence,
    /// Events up to this version are known to the client.
    pub(super) known: ResourceVersion,
    /// Held while the version that the client came with is still to come: nothing is sent until then. A relist may pass over
    /// it, and then the difference that is published does not hold what this client needs: objects made and gone again
    /// since the last version served.
    ahead: Option<Box<WatchWaiter>>,
    pub(super) bookmarks: Option<BookmarkSchedule>,
    /// What was published before is no measure of our delay.
    opened_at: std::time::Instant,
    deadline: Instant,
    end: Option<WatchEnd>,
    events: u64,
    bytes: u64,
    /// The right to be there.
    place: Option<WatchPermit>,
    /// The client's permission, which may be revoked.
    pub(super) lease: Option<LeaseHold>,
    /// Of the audit log; held, and never looked at.
    pub(super) trail: Option<AuditTrail>,
}

/// What there is for a client.
#[derive(Debug)]
pub(crate) enum CursorStep {
    /// To be sent.
    Frame(BufList),
    /// Nothing until it is woken.
    Nothing,
    /// Nothing so far. There is more to look through, after others had their turn; nobody wakes it for that.
    Unfinished,
    /// The stream is over.
    Over,
}

/// What is to be done at a time that was waited for.
#[derive(Debug)]
pub(crate) enum TimerAction {
    /// Its time is up; the stream has ended.
    Ended,
    /// A bookmark is to be sent.
    Bookmark(Bytes),
    /// Nothing; there may be events.
    Nothing,
}

impl WatchCursor {
    /// The place of a client who has joined `view` at `cursor`, when its batches had `reached` so far, and whose stream
    /// begins at `start`, decided afterwards.
    pub(super) fn new(
        served: ServedResource,
        (view, cursor, reached): (Arc<View>, Sequence, HubPosition),
        start: Start,
        timing: Timing,
        tally: Arc<dyn WatchRecorder>,
    ) -> Self {
        let (initial, position, known) = match start {
            Start::Initial {
                snapshot,
                version,
                marker,
            } => {
                let sequence = snapshot.sequence;
                let initial = InitialEvents::new(snapshot, version, marker);
                (Some(initial), sequence, version)
            }
            Start::After { sequence, version } => (None, sequence, version),
        };
        let is_ahead = initial.is_none() && known > reached.version;
        let ahead = is_ahead.then(|| Box::new(served.hub.progress_waiter()));
        let deadline = timing.started + timing.timeout;
        let bookmarks =
            (timing.bookmarks).then(|| BookmarkSchedule::new(timing.started, deadline, known));
        Self {
            served,
            tally,
            limits: &FRAMES,
            view,
            cursor,
            initial,
            position,
            history_end: reached.through,
            known,
            ahead,
            bookmarks,
            opened_at: timing.started.into_std(),
            deadline,
            end: None,
            events: 0,
            bytes: 0,
            place: None,
            lease: None,
            trail: None,
        }
    }

    /// Holds its right to be there, and that to send initial events until they are sent.
    pub(super) fn hold_permits(&mut self, watch: Option<WatchPermit>, list: Option<ListPermit>) {
        self.place = watch;
        if let Some(initial) = &mut self.initial {
            initial.hold(list);
        }
    }

    /// The view that it shares.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Who is told of what is delivered.
    pub(crate) fn tally(&self) -> &Arc<dyn WatchRecorder> {
        &self.tally
    }

    /// The next of the view's batches that it needs.
    pub(crate) fn cursor(&self) -> Sequence {
        self.cursor
    }

    /// Whether batches from `from` on, the first event of which is `first` at `first_version`, are wholly new to it and
    /// next in turn.
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
            && self.initial.is_none()
            && self.ahead.is_none()
            && self.end.is_none()
    }

    /// It got them: it goes on at batch `to`, after event `last`. `events` and `bytes` were counted by the caller.
    pub(crate) fn advance(&mut self, to: Sequence, last: Sequence, (events, bytes): (u64, u64)) {
        self.cursor = to;
        self.position = last + 1;
        self.events += events;
        self.bytes += bytes;
    }

    /// Whether it is still being told what there is.
    pub(crate) fn is_initial(&self) -> bool {
        self.initial
            .as_ref()
            .is_some_and(|initial| !initial.is_done())
    }

    /// Why the stream is over, once it is.
    pub(crate) fn end(&self) -> Option<WatchEnd> {
        self.end
    }

    /// Ends it.
    pub(super) fn end_as(&mut self, end: WatchEnd) {
        self.end.get_or_insert(end);
    }

    /// Ends it because its view is closed, with an event for a client that must list again.
    fn close(&mut self) -> CursorStep {
        self.end_as(WatchEnd::Closed);
        if self.served.hub.is_expired() {
            CursorStep::Frame(self.expired())
        } else {
            CursorStep::Over
        }
    }

    /// When it wants to be looked at though nothing happens.
    pub(crate) fn wake_at(&self) -> Instant {
        let bookmark = self.bookmarks.as_ref().map(|bookmarks| bookmarks.next_at);
        bookmark.map_or(self.deadline, |at| at.min(self.deadline))
    }

    /// Ends the stream if its time is up.
    pub(crate) fn is_overdue(&mut self, now: Instant) -> bool {
        let is_overdue = now >= self.deadline;
        if is_overdue {
            self.end_as(WatchEnd::Deadline);
        }
        is_overdue
    }

    /// Does what is due.
    pub(crate) fn on_time(&mut self, now: Instant) -> TimerAction {
        if self.is_overdue(now) {
            return TimerAction::Ended;
        }
        self.bookmark(now)
            .map_or(TimerAction::Nothing, TimerAction::Bookmark)
    }

    /// Asks to be woken when the version is reached that the client came with, if it is still to come: no batch need come with
    /// it. Gather once more afterwards.
    pub(crate) fn arm(&self, waker: &Waker) {
        if let Some(waiter) = &self.ahead {
            waiter.arm(waker);
        }
    }

    fn selector(&self) -> &Selector {
        self.view.selector()
    }

    /// What can be sent now.
    pub(crate) fn next(&mut self) -> CursorStep {
        if self.end.is_some() {
            return CursorStep::Over;
        }
        // Asked before looking: what came before the end is still shown.
        let is_closed = self.view.is_closed();
        let next = self.gather();
        if is_closed && matches!(next, CursorStep::Nothing) {
            return self.close();
        }
        next
    }

    fn gather(&mut self) -> CursorStep {
        if self.ahead.is_some() {
            match self.level() {
                Ok(true) => {}
                Ok(false) => return CursorStep::Nothing,
                Err(error) => return CursorStep::Frame(error),
            }
        }
        loop {
            if let Some(initial) = &mut self.initial {
                match initial.next_frame(&self.view, &self.served, self.limits) {
                    Ok((Some(pieces), count)) => return self.counted(pieces, count),
                    Ok((None, _)) if initial.is_done() => self.initial = None,
                    Ok((None, _)) => return CursorStep::Unfinished,
                    Err(_) => return self.unfit(),
                }
            }
            if self.position < self.history_end
                && let Some(next) = self.gather_history()
            {
                return next;
            }
            if let Some(next) = self.gather_batches() {
                return next;
            }
        }
    }

    /// Whether the client's version has been reached. Else [`Self::arm`] asks to be woken when it is.
    ///
    /// # Errors
    /// The client's last event, when the history after its version is not known.
    fn level(&mut self) -> Result<bool, BufList> {
        // What has been reached is in the snapshot, with its gaps.
        if self.served.hub.reached().version < self.known {
            return Ok(false);
        }
        let Ok(sequence) = self.served.cache.resume_after(self.known) else {
            return Err(self.lagged());
        };
        self.position = self.position.max(sequence);
        self.ahead = None;
        Ok(true)
    }

    /// Reads this client's own way through the history. `None` once it is where the view goes on.
    fn gather_history(&mut self) -> Option<CursorStep> {
        let (mut pieces, mut count, mut cost) = (BufList::default(), 0, 0);
        let (known, limits) = (self.known, self.limits);
        let (opened_at, mut oldest) = (self.opened_at, None);
        let range = self.position..self.history_end;
        let (view, mut unfit) = (&self.view, None);
        let read = filtered(
            self.served.cache.history(),
            self.selector(),
            range,
            |event, kind| {
                let kind = kind.filter(|_| event.resource_version() > known);
                cost += view.cost(event.object().frame_len(), kind.is_some());
                if let Some(kind) = kind {
                    let Ok(frame) = view.frame(event, kind) else {
                        unfit = Some(event.sequence());
                        return ControlFlow::Break(());
                    };
                    pieces.push(frame);
                    count += 1;
                    if event.published_at() >= opened_at {
                        oldest.get_or_insert_with(|| event.published_at());
                    }
                }
                if limits.are_reached(&pieces, cost) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        match read {
            Ok(next) => self.position = unfit.unwrap_or(next),
            Err(_) => return Some(CursorStep::Frame(self.lagged())),
        }
        if let Some(oldest) = oldest {
            self.tally.delayed(since(oldest), 1);
        }
        if !pieces.is_empty() {
            return Some(self.counted(pieces, count));
        }
        if unfit.is_some() {
            // A client that resumed here would meet the same event again and again; after a list it resumes behind it.
            return Some(CursorStep::Frame(self.lagged()));
        }
        (self.position < self.history_end).then_some(CursorStep::Unfinished)
    }

    /// Takes the batches that wait in the view, shared with all its watchers. `None` if the history has to be read first.
    fn gather_batches(&mut self) -> Option<CursorStep> {
        let (mut pieces, mut count) = (BufList::default(), 0);
        let (mut position, mut detour) = (self.position, None);
        let (known, tally, limits) = (self.known, &self.tally, self.limits);
        let mut now = None;
        let read = self.view.read(self.cursor, |batch| {
            if batch.last < position || batch.last_version <= known {
                return ControlFlow::Continue(());
            }
            if batch.first < position || batch.first_version <= known {
                // A part of it is known to this client: the history has the events one by one. Nothing before it
                // is of interest, however long ago the last batch came.
                position = position.max(batch.first);
                detour = Some(batch.last + 1);
                return ControlFlow::Break(());
            }
            position = batch.last + 1;
            count += batch.count;
            pieces.push(batch.frames.clone());
            let now = *now.get_or_insert_with(|| Instant::now().into_std());
            tally.delayed(now.saturating_duration_since(batch.published_at), 1);
            if limits.are_reached(&pieces, 0) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        match read {
            Ok(cursor) => self.cursor = cursor,
            Err(_) => {
                // The view keeps little; what it no longer has the history may have.
                self.rejoin();
                return None;
            }
        }
        self.position = position;
        if let Some(end) = detour {
            self.history_end = end;
        }
        match (pieces.is_empty(), detour) {
            (false, _) => Some(self.counted(pieces, count as u64)),
            (true, Some(_)) => None,
            (true, None) => Some(CursorStep::Nothing),
        }
    }

    /// Goes on after batches were missed: with the history from the first of them on, then the view again.
    fn rejoin(&mut self) {
        // What lies before that batch and is of interest was in earlier ones. Without this, a client whose selector
        // seldom matches would be looked for at its last event, long gone from the history.
        if let Some(first) = self.view.first_of(self.cursor) {
            self.position = self.position.max(first);
        }
        let (cursor, reached) = self.served.hub.place_in(&self.view);
        self.cursor = cursor;
        self.history_end = reached.through;
    }

    fn counted(&mut self, pieces: BufList, events: u64) -> CursorStep {
        let bytes = pieces.len() as u64;
        self.events += events;
        self.bytes += bytes;
        self.tally.delivered(events, bytes);
        CursorStep::Frame(pieces)
    }

    /// Ends the stream where an event cannot be made fit for it, as upstream does.
    fn unfit(&mut self) -> CursorStep {
        self.end = Some(WatchEnd::Closed);
        CursorStep::Over
    }

    /// The last event of a client that fell out of the history.
    fn lagged(&mut self) -> BufList {
        self.end = Some(WatchEnd::Lagged);
        self.expired()
    }

    fn expired(&self) -> BufList {
        let cache = &self.served.cache;
        let floor = cache.snapshot().map_or(self.known, |snapshot| {
            crate::cache::floor(&snapshot, cache.history())
        });
        Status::expired_watch(self.known, floor)
            .error_event(self.view.encoding())
            .into()
    }

    /// A bookmark, if one is due and the client has everything that it speaks of.
    fn bookmark(&mut self, now: Instant) -> Option<Bytes> {
        if self.ahead.is_some() {
            self.bookmarks.as_mut()?.wait(now, self.deadline);
            return None;
        }
        let due = self
            .bookmarks
            .as_ref()
            .is_some_and(|bookmarks| bookmarks.next_at <= now);
        // Read before the view is looked at: what comes with it is in the view then.
        let reached = self.served.hub.reached();
        if self.initial.is_some()
            || self.position < self.history_end
            || self.view.head() > self.cursor
            // What has been reached may hold an event that the view could not show.
            || self.view.is_closed()
        {
            return None;
        }
        self.position = self.position.max(reached.through);
        self.history_end = self.position;
        let bookmarks = self.bookmarks.as_mut().filter(|_| due)?;
        bookmarks.wait(now, self.deadline);
        if reached.version <= bookmarks.beyond || reached.version < self.known {
            return None;
        }
        let shape = self.served.hub.bookmark();
        let bookmark = self.view.bookmark(&shape, reached.version, Marker::None);
        // A shape that cannot be cut is as good as none.
        bookmark.ok()
    }
}

/// How long ago that was.
fn since(moment: std::time::Instant) -> Duration {
    Instant::now().into_std().saturating_duration_since(moment)
}

impl Drop for WatchCursor {
    fn drop(&mut self) {
        let end = self.end.unwrap_or(WatchEnd::Client);
        self.tally.ended(WatchTotals {
            end,
            events: self.events,
            bytes: self.bytes,
        });
    }
}
