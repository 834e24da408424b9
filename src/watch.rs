//! The body of a watch: pulled by the socket, fed from the snapshot, the history and the shared view, in this order.
//!
//! Nothing is queued for a client. What it keeps between two writes is its place: while its socket is full it costs
//! that, delays nobody, and reads on (or is told to list again) when the socket takes more.

mod bookmarks;
pub(crate) mod delivery;
mod follower;
mod initial;
mod permission;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use crate::admission::{ListPermit, WatchPermit};
use crate::audit::AuditTrail;
use crate::auth::lease::LeaseHold;
use crate::cache::{Sequence, Snapshot};
use crate::protocol::BufList;
use crate::resource::ResourceVersion;
use crate::view::{Marker, ServedResource, ViewSubscription, WatchWaiter};
pub(crate) use follower::{CursorStep, TimerAction, WatchCursor};

/// What one frame of a stream holds.
#[derive(Debug)]
pub(crate) struct FrameLimits {
    /// Bytes, about: so much is gathered for a socket that is behind.
    pub(crate) len: usize,
    /// The same of initial events. They are borrowed from the snapshot, which is held anyway.
    pub(crate) initial_len: usize,
    /// Slices.
    pub(crate) slices: usize,
    /// What looking for its events may cost, in terms of selectors, before others have their turn.
    pub(crate) cost: usize,
}

impl FrameLimits {
    fn are_reached(&self, pieces: &BufList, cost: usize) -> bool {
        pieces.len() >= self.len || pieces.count() >= self.slices || cost >= self.cost
    }
}

/// Tests have smaller ones. hyper writes 64 slices at once. A term takes some 30 ns: a search takes a quarter of a millisecond.
pub(crate) static FRAMES: FrameLimits = FrameLimits {
    len: 64 << 10,
    initial_len: 256 << 10,
    slices: 60,
    cost: 8_192,
};

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchEnd {
    /// Its time was up, or its client's credential has expired.
    Deadline,
    /// Its client may no longer read this.
    Revoked,
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
pub trait WatchRecorder: Send + Sync + std::fmt::Debug {
    /// Called as events leave: `events` more, `bytes` more.
    fn delivered(&self, events: u64, bytes: u64);
    /// Called as a batch leaves that was published while the stream was open: so long ago, to so many clients. Of a client
    /// that reads the history because it is behind, once a frame and for the oldest event of it.
    fn delayed(&self, _by: Duration, _clients: u64) {}
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

/// One watch as the body of an answer.
#[derive(Debug)]
pub struct WatchBody {
    follower: WatchCursor,
    seat: WatchWaiter,
    timer: Pin<Box<Sleep>>,
    timer_is_set: bool,
}

impl WatchBody {
    /// A stream of what the view of `entry` shows, from `start` on. `entry` was taken before `start` was decided.
    #[must_use]
    pub fn new(
        served: ServedResource,
        entry: ViewSubscription,
        start: Start,
        timing: Timing,
        tally: Arc<dyn WatchRecorder>,
    ) -> Self {
        let ViewSubscription {
            view,
            cursor,
            reached,
            seat,
        } = entry;
        let follower = WatchCursor::new(served, (view, cursor, reached), start, timing, tally);
        let timer = Box::pin(tokio::time::sleep_until(follower.wake_at()));
        Self {
            follower,
            seat,
            timer,
            timer_is_set: false,
        }
    }

    /// The same, with the right to be there, and to send initial events.
    #[must_use]
    pub fn holding(mut self, watch: Option<WatchPermit>, list: Option<ListPermit>) -> Self {
        self.follower.hold(watch, list);
        self
    }

    /// The same, ended when the permission is revoked.
    #[must_use]
    pub fn leased(mut self, lease: Option<LeaseHold>) -> Self {
        self.follower.lease = lease;
        self
    }

    /// Holds what is recorded of it until it is over.
    pub(crate) fn record(&mut self, trail: AuditTrail) {
        self.follower.trail = Some(trail);
    }

    /// The same with other limits.
    #[cfg(test)]
    pub(crate) fn limited(mut self, limits: &'static FrameLimits) -> Self {
        self.follower.limits = limits;
        self
    }

    /// Its place, for somebody who brings the events to the client in another way, and a seat in its view.
    pub(crate) fn into_parts(self) -> (WatchCursor, WatchWaiter) {
        (self.follower, self.seat)
    }

    /// True after the deadline. Asks the timer, which costs less than the clock, so that a client who is always behind
    /// is not served for ever.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        if !self.timer_is_set {
            self.timer_is_set = true;
            // Only registers it: whether it has gone off is asked below.
            let _ = self.timer.as_mut().poll(context);
        }
        self.timer.is_elapsed() && self.follower.is_overdue(Instant::now())
    }

    /// Whether what comes next is not there yet, as far as it knows.
    pub(crate) fn pauses(&self) -> bool {
        !self.follower.is_initial()
    }

    /// Sets the timer to what comes next and asks to be woken by it.
    fn arm_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let wake_at = self.follower.wake_at();
        if self.timer.deadline() != wake_at {
            self.timer.as_mut().reset(wake_at);
        }
        self.timer.as_mut().poll(context)
    }
}

impl Body for WatchBody {
    type Data = BufList;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, Infallible>>> {
        let this = self.get_mut();
        let frame = |pieces| Poll::Ready(Some(Ok(Frame::data(pieces))));
        // Armed on every poll, so that it is woken wherever it waits.
        this.follower.arm_lease(context.waker());
        if this.follower.is_revoked() || this.is_overdue(context) {
            return Poll::Ready(None);
        }
        let mut is_armed = false;
        loop {
            match this.follower.next() {
                CursorStep::Frame(pieces) => return frame(pieces),
                CursorStep::Over => return Poll::Ready(None),
                CursorStep::Unfinished => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                // Armed first, looked at again after: a batch between the two is seen, a later one wakes us.
                CursorStep::Nothing if !is_armed => {
                    this.seat.arm(context.waker());
                    this.follower.arm(context.waker());
                    is_armed = true;
                    continue;
                }
                CursorStep::Nothing => {}
            }
            if this.arm_timer(context).is_pending() {
                return Poll::Pending;
            }
            match this.follower.on_time(Instant::now()) {
                TimerAction::Ended => return Poll::Ready(None),
                TimerAction::Bookmark(line) => return frame(line.into()),
                TimerAction::Nothing => {}
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.follower.end().is_some()
    }
}

#[cfg(all(test, fanout_loom))]
mod models;
#[cfg(test)]
mod tests;
