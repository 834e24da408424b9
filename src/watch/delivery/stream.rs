//! One client: its connection, its place, and what is on its way to it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::chunk::{LAST, SharedChunk, chunked};
use crate::protocol::BufList;
use crate::transport::Transport;
use crate::watch::{CursorStep, TimerAction, WatchCursor};

/// When a bookmark is tried again that could not be sent between events.
const BOOKMARK_RETRY: Duration = Duration::from_secs(1);
/// What one vectored write is given at most.
const SLICES_MAX: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct DeliveryStream {
    transport: Transport,
    cursor: WatchCursor,
    /// Wakes the worker for this stream alone.
    waker: Waker,
    /// On its way. Nothing more is gathered before it has left.
    out: BufList,
    phase: DeliveryPhase,
    done: oneshot::Sender<Transport>,
    /// Whose list it is in, and where.
    pub(super) group: usize,
    pub(super) place: usize,
    /// What its timer is set to.
    pub(super) wake_at: Instant,
    /// The number of its entry in the worker's backlog, while it has one.
    pub(super) backlog_entry: Option<u64>,
}

/// ```text
/// Head ── joined by what there is ──▶ Open ── the watch is over ──▶ Ending ── all is written ──▶ given back
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeliveryPhase {
    /// Nothing is written yet.
    Head,
    Open,
    /// All is written, but a layer below may hold some of it.
    Unflushed,
    /// The last chunk is on its way.
    Ending,
}

/// How a stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamProgress {
    /// It has everything that the view shows.
    Idle,
    /// It has the chunk it was given, and the view has more: its group must go on.
    Behind,
    /// Its connection takes nothing now; it will be woken.
    Blocked,
    /// It has had its turn, and there is more to send or to look through.
    Again,
    /// The watch is over, and all is written.
    Over,
    /// The client has left.
    Gone,
}

impl DeliveryStream {
    pub(super) fn new(
        transport: Transport,
        head: Bytes,
        mut cursor: WatchCursor,
        waker: Waker,
        done: oneshot::Sender<Transport>,
    ) -> Self {
        // For the whole of its life: a stream's waker is always the same.
        cursor.arm_lease(&waker);
        Self {
            wake_at: cursor.wake_at(),
            transport,
            cursor,
            waker,
            out: head.into(),
            phase: DeliveryPhase::Head,
            done,
            group: 0,
            place: 0,
            backlog_entry: None,
        }
    }

    pub(super) fn cursor(&self) -> &WatchCursor {
        &self.cursor
    }

    /// True if it takes part in what its group is given. Else it gathers by itself when it is woken.
    pub(super) fn is_level(&self) -> bool {
        self.phase == DeliveryPhase::Open && self.out.is_empty()
    }

    /// Gives the connection back to whoever brought it.
    pub(super) fn give_back(self) {
        // If nobody waits for it any more it is closed.
        let _ = self.done.send(self.transport);
    }

    /// Writes a chunk that others get too. `None` if it is not what this client needs next.
    pub(super) fn take(&mut self, chunk: &SharedChunk) -> Option<StreamProgress> {
        if !self
            .cursor
            .can_take(chunk.from, chunk.first, chunk.first_version)
        {
            return None;
        }
        self.cursor
            .advance(chunk.to, chunk.last, (chunk.events, chunk.len));
        let sent = if chunk.is_cut {
            StreamProgress::Behind
        } else {
            StreamProgress::Idle
        };
        let mut context = Context::from_waker(&self.waker);
        if chunk.pieces.count() == 1 {
            let bytes = chunk.pieces.chunk();
            let written = match self.transport.poll_send(&mut context, bytes) {
                Poll::Ready(Ok(written)) => written,
                Poll::Ready(Err(_)) => return Some(StreamProgress::Gone),
                Poll::Pending => 0,
            };
            if written < bytes.len() {
                self.out = chunk.pieces.clone();
                self.out.advance(written);
            } else if self.transport.poll_flushed(&mut context).is_ready() {
                return Some(sent);
            } else {
                self.phase = DeliveryPhase::Unflushed;
                return Some(StreamProgress::Blocked);
            }
        } else {
            self.out = chunk.pieces.clone();
        }
        match self.poll_out() {
            Poll::Ready(Ok(())) => Some(sent),
            Poll::Ready(Err(_)) => Some(StreamProgress::Gone),
            Poll::Pending => Some(StreamProgress::Blocked),
        }
    }

    /// Hears the client, sends what there is in `turn` writes at most, and then does what is due by `now`.
    pub(super) fn wake(&mut self, now: Instant, turn: usize) -> StreamProgress {
        let mut context = Context::from_waker(&self.waker);
        if self.done.poll_closed(&mut context).is_ready()
            || self.transport.poll_hear(&mut context).is_err()
        {
            return StreamProgress::Gone;
        }
        // Asked here and not for each event: whoever revokes the permission wakes the stream. And a client who is always behind is
        // not served for ever.
        let _ = self.cursor.is_revoked() || self.cursor.is_overdue(now);
        let mut flow = self.drive(turn);
        if flow == StreamProgress::Idle
            && self.cursor.wake_at() <= now
            && let TimerAction::Bookmark(line) = self.cursor.on_time(now)
        {
            self.out = chunked(line.into());
            flow = self.drive(turn);
        }
        self.wake_at = self.cursor.wake_at();
        if flow == StreamProgress::Idle && self.wake_at <= now {
            // Something came in between that the bookmark would run ahead of.
            self.wake_at = now + BOOKMARK_RETRY;
        }
        flow
    }

    /// Sends what there is, in `turn` writes at most.
    pub(super) fn drive(&mut self, turn: usize) -> StreamProgress {
        // The group waits for batches; this is for what comes without one.
        self.cursor.arm(&self.waker);
        if self.phase == DeliveryPhase::Head {
            // What there is leaves with the head.
            if let CursorStep::Frame(pieces) = self.cursor.next() {
                self.out.append(chunked(pieces));
            }
            self.phase = DeliveryPhase::Open;
        }
        for _ in 0..turn {
            match self.poll_out() {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return StreamProgress::Gone,
                Poll::Pending => return StreamProgress::Blocked,
            }
            if self.phase == DeliveryPhase::Ending {
                return StreamProgress::Over;
            }
            match self.cursor.next() {
                CursorStep::Frame(pieces) => self.out = chunked(pieces),
                CursorStep::Nothing => return StreamProgress::Idle,
                CursorStep::Unfinished => return StreamProgress::Again,
                CursorStep::Over => {
                    self.out = Bytes::from_static(LAST).into();
                    self.phase = DeliveryPhase::Ending;
                }
            }
        }
        StreamProgress::Again
    }

    fn poll_out(&mut self) -> Poll<io::Result<()>> {
        let mut context = Context::from_waker(&self.waker);
        while self.out.has_remaining() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.out.chunks_vectored(&mut slices);
            match self
                .transport
                .poll_send_vectored(&mut context, &slices[..count])
            {
                Poll::Ready(Ok(written)) => self.out.advance(written),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        // Lets go of the list of slices with the slices.
        self.out = BufList::default();
        let flushed = self.transport.poll_flushed(&mut context);
        match (flushed.is_pending(), self.phase) {
            (true, DeliveryPhase::Open) => self.phase = DeliveryPhase::Unflushed,
            (false, DeliveryPhase::Unflushed) => self.phase = DeliveryPhase::Open,
            _ => {}
        }
        flushed
    }
}
