//! One watch, from its start to its end. Its events come from the snapshot, the history and the shared view, in this order.
//!
//! Nothing is queued for a client. Between two writes a watch keeps only its cursor, so a client whose socket is full delays nobody; it
//! reads on, or is told to list again, when the socket takes more.

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

/// One watch: how far its client has come, and its place among those who wait for the view. The connection chooses how events reach the
/// client: [`Delivery`](delivery::Delivery) over HTTP/1.1, a [`WatchBody`] over HTTP/2 and WebSocket.
#[derive(Debug)]
pub struct Watch {
    cursor: WatchCursor,
    waiter: WatchWaiter,
}

impl Watch {
    /// A stream of the events that the view of `subscription` shows, from `start` on. `subscription` was taken before `start` was decided.
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

    /// The same, with permits for the stream and for its initial events.
    #[must_use]
    pub fn holding(mut self, watch: Option<WatchPermit>, list: Option<ListPermit>) -> Self {
        self.cursor.hold_permits(watch, list);
        self
    }

    /// The same, ended when the permission is revoked.
    #[must_use]
    pub fn leased(mut self, lease: Option<LeaseHold>) -> Self {
        self.cursor.lease = lease;
        self
    }

    /// Keeps the audit trail open until the watch is over.
    pub(crate) fn record(&mut self, trail: AuditTrail) {
        self.cursor.trail = Some(trail);
    }

    /// The same with other limits.
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
