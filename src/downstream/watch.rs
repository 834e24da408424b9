//! The body of a watch: pulled by the socket, fed from the snapshot, the history and the shared view, in this order.
//!
//! Nothing is queued for a client. What it keeps between two writes is its place: while its socket is full it costs
//! that, delays nobody, and reads on (or is told to list again) when the socket takes more.

mod initial;

use std::convert::Infallible;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::Pieces;
use super::status::Status;
use crate::cache::{Sequence, Snapshot};
use crate::resource::ResourceVersion;
use crate::view::selector::Selector;
use crate::view::{Entry, Marker, Served, filtered};
use initial::Initial;

/// Bytes of one frame, about: so much is gathered for a socket that is behind.
const FRAME_LEN: usize = 64 << 10;
/// Slices of one frame: hyper writes 64 at once.
const FRAME_SLICES: usize = 60;
/// kube-apiserver's cadence: after the start or the last one, and before the deadline (protocol.md §4.7).
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
const BOOKMARK_BEFORE_DEADLINE: Duration = Duration::from_secs(2);

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchEnd {
    /// Its time was up.
    Deadline,
    /// It fell out of the history and was told to list again.
    Lagged,
    /// The resource is no longer served, or the gateway drains.
    Closed,
    /// The client went away.
    Client,
}

/// What a stream delivered, told once when it is over.
#[derive(Clone, Copy, Debug)]
pub struct WatchTotals {
    /// Why it ended.
    pub end: WatchEnd,
    /// Events, bookmarks left out.
    pub events: u64,
    /// Bytes of event lines.
    pub bytes: u64,
}

/// Gets the totals of each stream; the composition root turns them into metrics.
pub trait WatchTally: Send + Sync + std::fmt::Debug {
    /// Called as events leave: `events` more, `bytes` more.
    fn delivered(&self, events: u64, bytes: u64);
    /// Called as a batch leaves that was published while the stream was open: so long ago. Of a client that reads the
    /// history because it is behind, once a frame and for the oldest event of it.
    fn delayed(&self, _by: Duration) {}
    /// Called once per stream.
    fn ended(&self, totals: WatchTotals);
}

/// Where the live part of a watch begins.
#[derive(Debug)]
pub enum Start {
    /// Everything in the snapshot as ADDED, then what follows it. Bookmarks speak of `version` at first: the
    /// snapshot's own, or a later one at which it was proven unchanged.
    Initial {
        /// The state to show.
        snapshot: Arc<Snapshot>,
        /// The version it stands for.
        version: ResourceVersion,
        /// Whether the marker bookmark closes the initial events.
        marker: Marker,
    },
    /// Events from `sequence` on, but none up to `version`.
    After {
        /// The first event to look at.
        sequence: Sequence,
        /// Versions up to this one are known to the client.
        version: ResourceVersion,
    },
}

/// The times that a stream keeps.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// When the handler began.
    pub started: Instant,
    /// How long the stream lasts.
    pub timeout: Duration,
    /// Whether the client asked for bookmarks.
    pub bookmarks: bool,
}

/// One watch.
#[derive(Debug)]
pub struct WatchBody {
    served: Served,
    tally: Arc<dyn WatchTally>,
    entry: Entry,
    initial: Option<Initial>,
    /// Events below are delivered or not for this client.
    position: Sequence,
    /// Up to here the history is read; from here on the view's batches.
    history_end: Sequence,
    /// Events up to this version are known to the client.
    known: ResourceVersion,
    standing: Standing,
    bookmarks: Option<Bookmarks>,
    /// What was published before is no measure of our delay.
    opened_at: std::time::Instant,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    timer_is_set: bool,
    end: Option<WatchEnd>,
    events: u64,
    bytes: u64,
}

/// How the version that a client came with compares with what is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It was reached, and the history after it is whole.
    Level,
    /// It is still to come: nothing is sent. A relist may pass over it meanwhile, and then the difference that is
    /// published does not hold what this client needs: objects made and gone again since the last version served.
    Ahead,
}

#[derive(Debug)]
struct Bookmarks {
    next_at: Instant,
    /// Bookmarks must speak of something later than the watch began with.
    beyond: ResourceVersion,
}

impl WatchBody {
    /// A stream of what `selector` lets pass, from `start` on. `entry` was taken before `start` was decided.
    #[must_use]
    pub fn new(
        served: Served,
        entry: Entry,
        start: Start,
        timing: Timing,
        tally: Arc<dyn WatchTally>,
    ) -> Self {
        let history_end = entry.reached.through;
        let (initial, position, known) = match start {
            Start::Initial {
                snapshot,
                version,
                marker,
            } => {
                let (sequence, known) = (snapshot.sequence, version);
                (
                    Some(Initial::new(snapshot, version, marker)),
                    sequence,
                    known,
                )
            }
            Start::After { sequence, version } => (None, sequence, version),
        };
        let standing = if initial.is_none() && known > entry.reached.version {
            Standing::Ahead
        } else {
            Standing::Level
        };
        let deadline = timing.started + timing.timeout;
        let bookmarks = timing.bookmarks.then(|| Bookmarks {
            next_at: next_bookmark(timing.started, deadline),
            beyond: known,
        });
        let wake_at = bookmarks
            .as_ref()
            .map_or(deadline, |bookmarks| bookmarks.next_at.min(deadline));
        Self {
            served,
            tally,
            entry,
            initial,
            position,
            history_end,
            known,
            standing,
            bookmarks,
            opened_at: timing.started.into_std(),
            deadline,
            timer: Box::pin(tokio::time::sleep_until(wake_at)),
            timer_is_set: false,
            end: None,
            events: 0,
            bytes: 0,
        }
    }

    fn selector(&self) -> &Selector {
        self.entry.view.selector()
    }

    /// What can be sent now; `None` if nothing can.
    fn gather(&mut self) -> Option<Pieces> {
        if self.standing == Standing::Ahead {
            match self.level() {
                Ok(Standing::Level) => {}
                Ok(Standing::Ahead) => return None,
                Err(error) => return Some(error),
            }
        }
        loop {
            if let Some(initial) = &mut self.initial {
                match initial.next_frame(&self.entry.view, &self.served) {
                    Ok((Some(pieces), count)) => return Some(self.counted(pieces, count)),
                    Ok((None, _)) => self.initial = None,
                    Err(_) => return self.unfit(),
                }
            }
            if self.position < self.history_end {
                match self.gather_history() {
                    Ok(Some(pieces)) => return Some(pieces),
                    Ok(None) => {}
                    Err(error) => return Some(error),
                }
            }
            if self.position >= self.history_end {
                match self.gather_batches() {
                    Gathered::Pieces(pieces) => return Some(pieces),
                    Gathered::Nothing => return None,
                    Gathered::ReadHistory => {}
                }
            }
        }
    }

    /// Looks whether the client's version has been reached, and whether its history is known.
    fn level(&mut self) -> Result<Standing, Pieces> {
        // What has been reached is in the snapshot, with its gaps.
        if self.served.hub.reached().version < self.known {
            return Ok(Standing::Ahead);
        }
        let Ok(sequence) = self.served.cache.resume_after(self.known) else {
            return Err(self.lagged());
        };
        self.position = self.position.max(sequence);
        self.standing = Standing::Level;
        Ok(Standing::Level)
    }

    /// Reads this client's own way through the history, up to where the view goes on.
    fn gather_history(&mut self) -> Result<Option<Pieces>, Pieces> {
        let (mut pieces, mut count, known) = (Pieces::default(), 0, self.known);
        let (opened_at, mut oldest) = (self.opened_at, None);
        let range = self.position..self.history_end;
        let (view, mut is_fit) = (&self.entry.view, true);
        let read = filtered(
            self.served.cache.history(),
            self.selector(),
            range,
            |event, kind| {
                if event.resource_version() > known {
                    let Ok(frame) = view.frame(event, kind) else {
                        is_fit = false;
                        return ControlFlow::Break(());
                    };
                    pieces.push(frame);
                    count += 1;
                    if event.published_at() >= opened_at {
                        oldest.get_or_insert_with(|| event.published_at());
                    }
                }
                if pieces.len() >= FRAME_LEN || pieces.count() >= FRAME_SLICES {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        match read {
            Ok(next) => self.position = next,
            Err(_) => return Err(self.lagged()),
        }
        if !is_fit {
            self.end = Some(WatchEnd::Closed);
        }
        if let Some(oldest) = oldest {
            self.tally.delayed(since(oldest));
        }
        Ok((!pieces.is_empty()).then(|| self.counted(pieces, count)))
    }

    /// Takes the batches that wait in the view, shared with all its watchers.
    fn gather_batches(&mut self) -> Gathered {
        let (mut pieces, mut count) = (Pieces::default(), 0);
        let (mut position, mut detour) = (self.position, None);
        let (known, tally) = (self.known, &self.tally);
        let mut now = None;
        let read = self.entry.view.read(self.entry.cursor, |batch| {
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
            tally.delayed(now.saturating_duration_since(batch.published_at));
            if pieces.len() >= FRAME_LEN || pieces.count() >= FRAME_SLICES {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        match read {
            Ok(cursor) => self.entry.cursor = cursor,
            Err(_) => {
                // The view keeps little; what it no longer has the history may have.
                self.rejoin();
                return Gathered::ReadHistory;
            }
        }
        self.position = position;
        if let Some(end) = detour {
            self.history_end = end;
        }
        match (pieces.is_empty(), detour) {
            (false, _) => Gathered::Pieces(self.counted(pieces, count as u64)),
            (true, Some(_)) => Gathered::ReadHistory,
            (true, None) => Gathered::Nothing,
        }
    }

    /// Goes on after batches were missed: with the history from the first of them on, then the view again.
    fn rejoin(&mut self) {
        let entry = &mut self.entry;
        // What lies before that batch and is of interest was in earlier ones. Without this, a client whose selector
        // seldom matches would be looked for at its last event, long gone from the history.
        if let Some(first) = entry.view.first_of(entry.cursor) {
            self.position = self.position.max(first);
        }
        (entry.cursor, entry.reached) = self.served.hub.place_in(&entry.view);
        self.history_end = entry.reached.through;
    }

    fn counted(&mut self, pieces: Pieces, events: u64) -> Pieces {
        let bytes = pieces.len() as u64;
        self.events += events;
        self.bytes += bytes;
        self.tally.delivered(events, bytes);
        pieces
    }

    /// Ends the stream where an event cannot be made fit for it, as upstream does.
    fn unfit(&mut self) -> Option<Pieces> {
        self.end = Some(WatchEnd::Closed);
        None
    }

    /// The last event of a client that fell out of the history.
    fn lagged(&mut self) -> Pieces {
        self.end = Some(WatchEnd::Lagged);
        let cache = &self.served.cache;
        let floor = cache.snapshot().map_or(self.known, |snapshot| {
            crate::cache::floor(&snapshot, cache.history())
        });
        Status::expired_watch(self.known, floor)
            .error_event(self.entry.view.encoding())
            .into()
    }

    /// A bookmark, if one is due and the client has everything that it speaks of.
    fn bookmark(&mut self, now: Instant) -> Option<Bytes> {
        if self.standing == Standing::Ahead {
            self.bookmarks.as_mut()?.next_at = next_bookmark(now, self.deadline);
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
            || self.entry.view.head() > self.entry.cursor
        {
            return None;
        }
        self.position = self.position.max(reached.through);
        self.history_end = self.position;
        let bookmarks = self.bookmarks.as_mut().filter(|_| due)?;
        bookmarks.next_at = next_bookmark(now, self.deadline);
        if reached.version <= bookmarks.beyond || reached.version < self.known {
            return None;
        }
        let shape = self.served.hub.bookmark();
        let bookmark = self
            .entry
            .view
            .bookmark(&shape, reached.version, Marker::None);
        // A shape that cannot be cut is as good as none.
        bookmark.ok()
    }

    /// True after the deadline. Asks the timer, which costs less than the clock, so that a client who is always behind
    /// is not served for ever.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        if !self.timer_is_set {
            self.timer_is_set = true;
            // Only registers it: whether it has gone off is asked below.
            let _ = self.timer.as_mut().poll(context);
        }
        self.timer.is_elapsed() && Instant::now() >= self.deadline
    }

    /// Sets the timer to what comes next and asks to be woken by it.
    fn arm_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let wake_at = self.bookmarks.as_ref().map_or(self.deadline, |bookmarks| {
            bookmarks.next_at.min(self.deadline)
        });
        if self.timer.deadline() != wake_at {
            self.timer.as_mut().reset(wake_at);
        }
        self.timer.as_mut().poll(context)
    }
}

enum Gathered {
    Pieces(Pieces),
    Nothing,
    ReadHistory,
}

/// How long ago that was.
fn since(moment: std::time::Instant) -> Duration {
    Instant::now().into_std().saturating_duration_since(moment)
}

/// 60 s from now, or 2 s before the deadline if that comes first and is still ahead.
fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline
        .checked_sub(BOOKMARK_BEFORE_DEADLINE)
        .unwrap_or(now);
    let regular = now + BOOKMARK_PERIOD;
    if last > now {
        regular.min(last)
    } else {
        deadline + BOOKMARK_PERIOD
    }
}

impl Body for WatchBody {
    type Data = Pieces;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Pieces>, Infallible>>> {
        let this = self.get_mut();
        let frame = |pieces| Poll::Ready(Some(Ok(Frame::data(pieces))));
        if this.end.is_some() {
            return Poll::Ready(None);
        }
        if this.is_overdue(context) {
            this.end = Some(WatchEnd::Deadline);
            return Poll::Ready(None);
        }
        if let Some(pieces) = this.gather() {
            return frame(pieces);
        }
        if this.end.is_some() {
            return Poll::Ready(None);
        }
        // Armed first, looked at again after: a batch between the two is seen, a later one wakes us.
        this.entry.seat.arm(context.waker());
        if let Some(pieces) = this.gather() {
            return frame(pieces);
        }
        if this.entry.view.is_closed() {
            this.end = Some(WatchEnd::Closed);
            return Poll::Ready(None);
        }
        while this.arm_timer(context).is_ready() {
            let now = Instant::now();
            if now >= this.deadline {
                this.end = Some(WatchEnd::Deadline);
                return Poll::Ready(None);
            }
            if let Some(line) = this.bookmark(now) {
                return frame(line.into());
            }
            if let Some(pieces) = this.gather() {
                return frame(pieces);
            }
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_some()
    }
}

impl Drop for WatchBody {
    fn drop(&mut self) {
        let end = self.end.unwrap_or(WatchEnd::Client);
        self.tally.ended(WatchTotals {
            end,
            events: self.events,
            bytes: self.bytes,
        });
    }
}

#[cfg(test)]
mod tests;
