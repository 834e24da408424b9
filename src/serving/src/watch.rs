//! One watch, from its start to its end. Its events come from the snapshot, the history and the shared view, in this order.
//!
//! `cursor` is the core: it produces the next frame for one client, without a socket or a timer. `initial` reads the snapshot,
//! for clients that get gzip in blocks (`initial_block`), `catch_up` reads what changed since an old version, `bookmarks` schedules bookmarks, and `lifetime` has the times of a watch. `guards`
//! end it when its permission is revoked; `recall` ends it when its client should choose another replica, and `connection_recall` recalls
//! all watches of a connection. `table` has all open watches of a cache, for the status page.
//! `body` drives a cursor for HTTP/2 and WebSocket, `delivery` many of them for HTTP/1.1 and, once their clients have caught up, for HTTP/2.
//! Start with [`Watch`] and
//! `WatchCursor::next`.
//!
//! Nothing is queued for a client. Between two writes a watch keeps only its cursor, so a client whose socket is full delays no
//! other. When the socket takes more, the watch reads on, or gets 410 if its events are no longer in the history.

mod body;
mod bookmarks;
mod catch_up;
mod compression;
mod connection_recall;
mod cursor;
pub(crate) mod delivery;
mod first_events;
mod guards;
mod initial;
mod initial_block;
mod lifetime;
mod limits;
mod progress;
mod recall;
mod recorder;
mod side;
mod start;
mod table;

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Sleep;

use crate::admission::{ListPermit, WatchPermit};
use crate::audit::AuditTrail;
use crate::auth::lease::LeaseHold;
use crate::cache::Epoch;
use crate::resource::ResourceVersion;
use crate::view::{GzipWeight, ServedResource, ViewSubscription, WatchWaiter};
pub use catch_up::can_catch_up;
pub(crate) use compression::WatchCompression;
pub use compression::{GzipReaders, GzipTrial};
pub use connection_recall::{OpenWatchCount, RECALLS_PER_SECOND, WatchRecall};
pub(crate) use cursor::{CursorStep, SharedBatches, TimerAction, WatchCursor};
pub(crate) use guards::WatchGuards;
pub use initial_block::{InitialBlocks, MakingBlock};
#[cfg(test)]
pub(crate) use limits::{FRAMES, FrameLimits};
pub(crate) use recorder::end_of_dropped;
pub use recorder::{WatchRecorder, WatchTotals};
pub use start::{Start, Timing};
pub(crate) use table::shortened;
pub use table::{
    CutReason, RecentCuts, SWEEPS, UnreadEvent, WatchClient, WatchCut, WatchPosition, WatchTable,
};

/// One watch: its cursor, and its waiter in the view. The connection chooses how events reach the client:
/// `delivery::Delivery` over HTTP/1.1; over HTTP/2 and WebSocket the watch is polled as a body, over HTTP/2 until the client has caught up.
#[derive(Debug)]
pub struct Watch {
    cursor: WatchCursor,
    waiter: WatchWaiter,
    /// Set by the first poll: a delivery worker has timers of its own.
    timer: Option<Pin<Box<Sleep>>>,
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
        Self {
            cursor: WatchCursor::new(served, &subscription, start, timing, recorder),
            waiter: subscription.waiter,
            timer: None,
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
        self.cursor.guards.lease = lease;
        self
    }

    /// Sends the watch as gzip, compressed if that is worth it.
    #[must_use]
    pub fn compressed(
        mut self,
        weight: GzipWeight,
        trial: Option<GzipTrial>,
        blocks: Arc<dyn InitialBlocks>,
    ) -> Self {
        self.cursor.compress(weight, trial, blocks);
        self
    }

    /// Keeps the audit entry open until the watch ends.
    pub(crate) fn record(&mut self, trail: AuditTrail) {
        self.cursor.guards.trail = Some(trail);
    }

    /// Enters the table of open watches, until the watch ends.
    pub(crate) fn enter(&mut self, table: &Arc<WatchTable>, client: WatchClient) {
        self.cursor.enter(table, client);
    }

    /// The version up to which the client has been sent all events, if that is known now.
    pub(crate) fn proven(&mut self) -> Option<ResourceVersion> {
        self.cursor.prove()
    }

    /// The number of lists that its cache has been filled from.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.cursor.epoch()
    }

    #[cfg(test)]
    pub(crate) fn limited(mut self, limits: &'static FrameLimits) -> Self {
        self.cursor.limits = limits;
        self
    }

    pub(crate) fn into_parts(self) -> (WatchCursor, WatchWaiter) {
        (self.cursor, self.waiter)
    }
}

#[cfg(all(test, feature = "loom"))]
mod models;
#[cfg(test)]
mod tests;
