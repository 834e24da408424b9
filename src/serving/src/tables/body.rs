//! The response body of one client's watch of Tables: hyper pulls lines, which it reads from the shared stream. It queues nothing.

use std::convert::Infallible;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::Tables;
use super::event::{RefusalEffect, refused};
use super::request::TableWatchRequest;
#[cfg(test)]
use super::stream::TableStream;
use super::stream::{StreamMember, TableStreamEnd};
use crate::admission::WatchPermit;
use crate::audit::AuditTrail;
use crate::auth::lease::LeaseHold;
use crate::cache::Sequence;
use crate::fairness::Peer;
use crate::metrics::WatchEnd;
use crate::protocol::status::Status;
use crate::resource::{Encoding, ResourceVersion};
use crate::view::WatchWaiter;
use crate::watch::{WatchGuards, WatchRecorder, WatchTotals, end_of_dropped};

/// One client's watch of Tables.
#[derive(Debug)]
pub struct TableBody {
    tables: Arc<Tables>,
    position: StreamPosition,
    /// How often streams had been expired when the client joined.
    expiries: u64,
    /// The client knows all versions up to this one.
    after: ResourceVersion,
    peer: Peer,
    /// Whether the next line is the first one, which carries the column definitions.
    is_first: bool,
    /// Whether the client may still move to another stream after upstream has refused this one; it may once.
    may_move: bool,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    recorder: Arc<dyn WatchRecorder>,
    end: Option<WatchEnd>,
    events: u64,
    bytes: u64,
    guards: WatchGuards,
}

/// The client's position in a stream.
#[derive(Debug)]
struct StreamPosition {
    member: StreamMember,
    waiter: WatchWaiter,
    cursor: Sequence,
}

impl StreamPosition {
    fn new(member: StreamMember, after: ResourceVersion) -> Self {
        let stream = member.stream();
        #[expect(clippy::cast_possible_truncation, reason = "any number will do")]
        let waiter = stream.waiters().waiter(crate::resource::random() as usize);
        let cursor = stream
            .history()
            .partition_point(|stored| stored.version <= after);
        Self {
            member,
            waiter,
            cursor,
        }
    }
}

/// The result of reading the stream's ring.
enum TableRead {
    Line(Bytes),
    Nothing,
    Lagged,
}

impl TableBody {
    pub(super) fn new(
        tables: Arc<Tables>,
        member: StreamMember,
        request: &TableWatchRequest,
        deadline: Instant,
        recorder: Arc<dyn WatchRecorder>,
    ) -> Self {
        recorder.started();
        let expiries = tables.stream_map.lock().expiries;
        Self {
            tables,
            expiries,
            position: StreamPosition::new(member, request.after),
            after: request.after,
            peer: request.peer,
            is_first: true,
            may_move: true,
            deadline,
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            recorder,
            end: None,
            events: 0,
            bytes: 0,
            guards: WatchGuards::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn stream(&self) -> &Arc<TableStream> {
        self.position.member.stream()
    }

    /// Stores the client's permit until the body is dropped.
    pub fn holding(mut self, permit: WatchPermit) -> Self {
        self.guards.permit = Some(permit);
        self
    }

    /// Stores the request's audit trail until the body is dropped.
    pub fn recorded(mut self, trail: Option<AuditTrail>) -> Self {
        self.guards.trail = trail;
        self
    }

    /// Ends the watch when the permission is revoked.
    pub fn leased(mut self, lease: Option<LeaseHold>) -> Self {
        self.guards.lease = lease;
        self
    }

    fn read_next(&mut self) -> TableRead {
        let stream = self.position.member.stream();
        let mut line = None;
        let read = stream.history().read(self.position.cursor, |_, stored| {
            if !stored.is_for(self.after) {
                return ControlFlow::Continue(());
            }
            line = Some(if self.is_first {
                stored.first_line(stream.columns())
            } else {
                stored.line()
            });
            ControlFlow::Break(())
        });
        match read {
            Ok(cursor) => self.position.cursor = cursor,
            Err(_) => return TableRead::Lagged,
        }
        let Some(line) = line else {
            return TableRead::Nothing;
        };
        self.is_first = false;
        let len = line.len() as u64;
        self.events += 1;
        self.bytes += len;
        self.recorder.delivered(1, len);
        TableRead::Line(line)
    }

    /// Moves the client to a stream that starts at its version; false if there is none.
    fn try_move(&mut self) -> bool {
        let key = &self.position.member.stream().key;
        let (after, peer, expiries) = (self.after, self.peer, self.expiries);
        let member = self
            .may_move
            .then(|| self.tables.rejoin(key, after, peer, expiries))
            .flatten();
        self.may_move = false;
        let has_moved = member.is_some();
        if let Some(member) = member {
            self.position = StreamPosition::new(member, self.after);
        }
        has_moved
    }

    /// The next line; `None` at the end of the watch.
    fn poll_line(&mut self, waker: &Waker) -> Poll<Option<Bytes>> {
        loop {
            if let Some(line) = self.next_line() {
                return Poll::Ready(line);
            }
            // The waiter is armed before the ring is read again: that read finds every earlier event, and every later one wakes the task.
            self.position.waiter.arm(waker);
            if let Some(line) = self.next_line() {
                return Poll::Ready(line);
            }
            let Some(end) = self.position.member.stream().end().cloned() else {
                return Poll::Pending;
            };
            // The events before the end are delivered first.
            if let Some(line) = self.next_line() {
                return Poll::Ready(line);
            }
            self.end = Some(WatchEnd::CacheGone);
            match end {
                TableStreamEnd::Closed => return Poll::Ready(None),
                TableStreamEnd::Expired | TableStreamEnd::Unreadable => {
                    let status = Status::expired_watch(self.after, ResourceVersion::default());
                    return Poll::Ready(Some(status.error_event(Encoding::Json)));
                }
                TableStreamEnd::Error { line, after } => {
                    let may_retry = refused(self.after, after) == RefusalEffect::MayRetry;
                    if may_retry && self.try_move() {
                        self.end = None;
                        continue;
                    }
                    return Poll::Ready(Some(line));
                }
            }
        }
    }

    fn next_line(&mut self) -> Option<Option<Bytes>> {
        match self.read_next() {
            TableRead::Line(line) => Some(Some(line)),
            TableRead::Nothing => None,
            TableRead::Lagged => {
                self.end = Some(WatchEnd::Lagged);
                Some(None)
            }
        }
    }
}

impl Body for TableBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.end.is_some() {
            return Poll::Ready(None);
        }
        this.guards.arm(context.waker());
        if let Some(end) = this.guards.revocation() {
            this.end = Some(end);
            return Poll::Ready(None);
        }
        // Without this check a client that is always behind would never reach its deadline.
        if Instant::now() >= this.deadline {
            this.end = Some(WatchEnd::Timeout);
            return Poll::Ready(None);
        }
        if let Poll::Ready(line) = this.poll_line(context.waker()) {
            return Poll::Ready(line.map(|line| Ok(Frame::data(line))));
        }
        if this.timer.as_mut().poll(context).is_ready() {
            this.end = Some(WatchEnd::Timeout);
            return Poll::Ready(None);
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_some()
    }
}

impl Drop for TableBody {
    fn drop(&mut self) {
        self.recorder.ended(WatchTotals {
            end: self.end.unwrap_or_else(end_of_dropped),
            client: None,
            events: self.events,
            bytes: self.bytes,
        });
    }
}
