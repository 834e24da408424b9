//! The body of one client's watch of Tables: pulled by the socket, fed from the shared stream. Queues nothing.

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
use crate::resource::ResourceVersion;
use crate::view::WatchWaiter;
use crate::watch::{WatchEnd, WatchRecorder, WatchTotals};

/// See the module.
#[derive(Debug)]
pub(crate) struct TableBody {
    tables: Arc<Tables>,
    place: StreamPosition,
    /// Versions up to this one are known to the client.
    after: ResourceVersion,
    /// Of its events the first tells the columns.
    is_first: bool,
    /// A stream that upstream refused may be left for another, once.
    may_move: bool,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    tally: Arc<dyn WatchRecorder>,
    end: Option<WatchEnd>,
    events: u64,
    bytes: u64,
    lease: Option<LeaseHold>,
    /// Of the audit log; held, and never looked at.
    _trail: Option<AuditTrail>,
    _admitted: Option<WatchPermit>,
}

/// Where a client is in a stream.
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
        let waiter = stream.waiting().waiter(crate::resource::random() as usize);
        let cursor = stream
            .history()
            .partition_point(|kept| kept.version <= after);
        Self {
            member,
            waiter,
            cursor,
        }
    }
}

/// What there is for a client.
enum TableRead {
    Line(Bytes),
    Nothing,
    Lagged,
}

impl TableBody {
    pub(super) fn new(
        tables: Arc<Tables>,
        member: StreamMember,
        ask: &TableWatchRequest,
        deadline: Instant,
        tally: Arc<dyn WatchRecorder>,
    ) -> Self {
        Self {
            tables,
            place: StreamPosition::new(member, ask.after),
            after: ask.after,
            is_first: true,
            may_move: true,
            deadline,
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            tally,
            end: None,
            events: 0,
            bytes: 0,
            lease: None,
            _trail: None,
            _admitted: None,
        }
    }

    #[cfg(test)]
    pub(super) fn stream(&self) -> &Arc<TableStream> {
        self.place.member.stream()
    }

    /// The same, with the right to be there.
    pub(crate) fn holding(mut self, admitted: Option<WatchPermit>) -> Self {
        self._admitted = admitted;
        self
    }

    /// The same, recorded.
    pub(crate) fn recorded(mut self, trail: Option<AuditTrail>) -> Self {
        self._trail = trail;
        self
    }

    /// The same, ended when the permission is revoked.
    pub(crate) fn leased(mut self, lease: Option<LeaseHold>) -> Self {
        self.lease = lease;
        self
    }

    /// Whether the permission was revoked; wakes `waker` when it is.
    fn is_revoked(&mut self, waker: &Waker) -> bool {
        self.lease.as_mut().is_some_and(|lease| {
            lease.arm(waker);
            lease.is_revoked()
        })
    }

    fn gather(&mut self) -> TableRead {
        let stream = self.place.member.stream();
        let mut line = None;
        let read = stream.history().read(self.place.cursor, |_, kept| {
            if !kept.is_for(self.after) {
                return ControlFlow::Continue(());
            }
            line = Some(if self.is_first {
                kept.first_line(stream.columns())
            } else {
                kept.line()
            });
            ControlFlow::Break(())
        });
        match read {
            Ok(cursor) => self.place.cursor = cursor,
            Err(_) => return TableRead::Lagged,
        }
        let Some(line) = line else {
            return TableRead::Nothing;
        };
        self.is_first = false;
        let len = line.len() as u64;
        self.events += 1;
        self.bytes += len;
        self.tally.delivered(1, len);
        TableRead::Line(line)
    }

    /// Leaves for a stream that begins where this client is; false if there is none.
    fn moved(&mut self) -> bool {
        let key = &self.place.member.stream().key;
        let member = self
            .may_move
            .then(|| self.tables.join(key, self.after))
            .flatten();
        self.may_move = false;
        let has_moved = member.is_some();
        if let Some(member) = member {
            self.place = StreamPosition::new(member, self.after);
        }
        has_moved
    }

    /// The next line, `None` at the end.
    fn poll_line(&mut self, waker: &Waker) -> Poll<Option<Bytes>> {
        loop {
            if let Some(line) = self.look() {
                return Poll::Ready(line);
            }
            // Armed first, looked at again after: an event between the two is seen, a later one wakes us.
            self.place.waiter.arm(waker);
            if let Some(line) = self.look() {
                return Poll::Ready(line);
            }
            let Some(end) = self.place.member.stream().end().cloned() else {
                return Poll::Pending;
            };
            // What was kept before the end comes before it.
            if let Some(line) = self.look() {
                return Poll::Ready(line);
            }
            self.end = Some(WatchEnd::Closed);
            match end {
                TableStreamEnd::Closed => return Poll::Ready(None),
                TableStreamEnd::Error { line, after } => {
                    let may_ask = refused(self.after, after) == RefusalEffect::MayAskAgain;
                    if may_ask && self.moved() {
                        self.end = None;
                        continue;
                    }
                    return Poll::Ready(Some(line));
                }
            }
        }
    }

    fn look(&mut self) -> Option<Option<Bytes>> {
        match self.gather() {
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
        if this.is_revoked(context.waker()) {
            this.end = Some(WatchEnd::Revoked);
            return Poll::Ready(None);
        }
        // A client who is always behind is not served for ever.
        if Instant::now() >= this.deadline {
            this.end = Some(WatchEnd::Deadline);
            return Poll::Ready(None);
        }
        if let Poll::Ready(line) = this.poll_line(context.waker()) {
            return Poll::Ready(line.map(|line| Ok(Frame::data(line))));
        }
        if this.timer.as_mut().poll(context).is_ready() {
            this.end = Some(WatchEnd::Deadline);
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
        self.tally.ended(WatchTotals {
            end: self.end.unwrap_or(WatchEnd::Client),
            events: self.events,
            bytes: self.bytes,
        });
    }
}
