//! One watch, from its start to its end. Its events come from the snapshot, the history and the shared view, in this order.
//!
//! `cursor` is the core: it produces the next frame for one client, without a socket or a timer. `initial` reads the snapshot,
//! `bookmarks` schedules bookmarks, `permission` ends the watch when it is revoked. [`WatchBody`] drives a cursor for HTTP/2 and
//! WebSocket, `delivery` many of them for HTTP/1.1. Start with [`Watch`] and `WatchCursor::next`.
//!
//! Nothing is queued for a client. Between two writes a watch keeps only its cursor, so a client whose socket is full delays no
//! other. When the socket takes more, the watch reads on, or gets 410 if its events are no longer in the history.

mod body;
mod bookmarks;
mod cursor;
pub(crate) mod delivery;
mod initial;
mod permission;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::admission::{ListPermit, WatchPermit};
use crate::audit::AuditTrail;
use crate::auth::lease::LeaseHold;
use crate::cache::{Sequence, Snapshot};
use crate::protocol::BufList;
use crate::resource::ResourceVersion;
use crate::view::{Marker, ServedResource, ViewSubscription, WatchWaiter};
pub use body::WatchBody;
pub(crate) use cursor::{CursorStep, TimerAction, WatchCursor};

/// The limits of one frame of a stream.
#[derive(Debug)]
pub(crate) struct FrameLimits {
    /// Approximate length in bytes, which is collected for a client that is behind.
    pub(crate) len: usize,
    /// Approximate length of a frame of initial events. It is larger because these are borrowed from the snapshot, which is in
    /// memory anyway.
    pub(crate) initial_len: usize,
    /// Number of slices.
    pub(crate) slices: usize,
    /// Cost of searching for the frame's events, in selector terms, after which other tasks run.
    pub(crate) cost: usize,
}

impl FrameLimits {
    fn are_reached(&self, buf: &BufList, cost: usize) -> bool {
        buf.len() >= self.len || buf.count() >= self.slices || cost >= self.cost
    }
}

/// The limits in production; tests have smaller ones. hyper writes 64 slices at once. Evaluating a term takes about 30 ns, so a
/// search takes a quarter of a millisecond.
pub(crate) static FRAMES: FrameLimits = FrameLimits {
    len: 64 << 10,
    initial_len: 256 << 10,
    slices: 60,
    cost: 8_192,
};

/// Why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchEnd {
    /// Its timeout was reached, or the client's credential has expired.
    Deadline,
    /// The client's permission was revoked.
    Revoked,
    /// Its events were no longer in the history; the client got 410.
    Lagged,
    /// The resource is no longer served, or the gateway is draining.
    Closed,
    /// The client disconnected.
    Client,
}

/// The totals of a stream, recorded once at its end.
#[derive(Clone, Copy, Debug)]
pub struct WatchTotals {
    /// Why it ended.
    pub end: WatchEnd,
    /// Number of events, without bookmarks.
    pub events: u64,
    /// Number of bytes of event frames.
    pub bytes: u64,
}

/// Records what watches deliver; the composition root implements it with metrics.
pub trait WatchRecorder: Send + Sync + std::fmt::Debug {
    /// Called once per stream, at its start.
    fn started(&self) {}
    /// Called when events are sent, with their number and length.
    fn delivered(&self, events: u64, bytes: u64);
    /// Called when a batch is sent that was published while the stream was open, with the time since its publication and the number
    /// of clients. For a client that is behind and reads the history, called once per frame, for the frame's oldest event.
    fn delayed(&self, _by: Duration, _clients: u64) {}
    /// Called once per stream, at its end.
    fn ended(&self, totals: WatchTotals);
}

/// Where a watch starts.
#[derive(Debug)]
pub enum Start {
    /// With the matching objects of the snapshot as ADDED events, then the events that follow. `version` is the version that the
    /// client has then: the snapshot's own, or a later one at which it was proven unchanged.
    Initial {
        /// The state to send.
        snapshot: Arc<Snapshot>,
        /// The version that the state represents.
        version: ResourceVersion,
        /// Whether a bookmark marks the end of the initial events.
        marker: Marker,
    },
    /// With the events from `sequence` on, without those up to `version`.
    After {
        /// The first event to consider.
        sequence: Sequence,
        /// The version that the client has; events up to it are not sent.
        version: ResourceVersion,
    },
}

/// The times of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// When the request arrived at the handler.
    pub started: Instant,
    /// How long the stream lasts at most.
    pub timeout: Duration,
    /// Whether the client allows bookmarks.
    pub bookmarks: bool,
}

/// One watch: its cursor, and its waiter in the view. The connection chooses how events reach the client:
/// `delivery::Delivery` over HTTP/1.1, a [`WatchBody`] over HTTP/2 and WebSocket.
#[derive(Debug)]
pub struct Watch {
    cursor: WatchCursor,
    waiter: WatchWaiter,
}

impl Watch {
    /// A watch of the events that the subscription's view shows, from `start` on. The view must be joined before `start` is
    /// determined, so that no event is missed in between.
    #[must_use]
    pub fn new(
        served: ServedResource,
        subscription: ViewSubscription,
        start: Start,
        timing: Timing,
        recorder: Arc<dyn WatchRecorder>,
    ) -> Self {
        let ViewSubscription {
            view,
            cursor,
            reached,
            waiter,
        } = subscription;
        Self {
            cursor: WatchCursor::new(served, (view, cursor, reached), start, timing, recorder),
            waiter,
        }
    }

    /// Adds the permits for the stream and for its initial events.
    #[must_use]
    pub fn holding(mut self, watch: Option<WatchPermit>, list: Option<ListPermit>) -> Self {
        self.cursor.hold_permits(watch, list);
        self
    }

    /// Ends the watch when the permission is revoked.
    #[must_use]
    pub fn leased(mut self, lease: Option<LeaseHold>) -> Self {
        self.cursor.lease = lease;
        self
    }

    /// Keeps the audit entry open until the watch ends.
    pub(crate) fn record(&mut self, trail: AuditTrail) {
        self.cursor.trail = Some(trail);
    }

    /// Sets other limits.
    #[cfg(test)]
    pub(crate) fn limited(mut self, limits: &'static FrameLimits) -> Self {
        self.cursor.limits = limits;
        self
    }

    pub(crate) fn into_parts(self) -> (WatchCursor, WatchWaiter) {
        (self.cursor, self.waiter)
    }
}

#[cfg(all(test, fanout_loom))]
mod models;
#[cfg(test)]
mod tests;
