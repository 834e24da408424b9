//! One client: its connection, its place, and what is on its way to it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::chunk::{LAST, SharedChunk, chunked};
use crate::protocol::Pieces;
use crate::transport::Transport;
use crate::watch::{Follower, Next, Timed};

/// When a bookmark is tried again that could not be sent between events.
const BOOKMARK_RETRY: Duration = Duration::from_secs(1);
/// What one vectored write is given at most.
const SLICES_MAX: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Stream {
    transport: Transport,
    follower: Follower,
    /// Wakes the worker for this stream alone.
    waker: Waker,
    /// On its way. Nothing more is gathered before it has left.
    out: Pieces,
    phase: Phase,
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
enum Phase {
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
pub(super) enum Flow {
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

impl Stream {
    pub(super) fn new(
        transport: Transport,
        head: Bytes,
        mut follower: Follower,
        waker: Waker,
        done: oneshot::Sender<Transport>,
    ) -> Self {
        // For the whole of its life: a stream's waker is always the same.
        follower.arm_lease(&waker);
        Self {
            wake_at: follower.wake_at(),
            transport,
            follower,
            waker,
            out: head.into(),
            phase: Phase::Head,
            done,
            group: 0,
            place: 0,
            backlog_entry: None,
        }
    }

    pub(super) fn follower(&self) -> &Follower {
        &self.follower
    }

    /// True if it takes part in what its group is given. Else it gathers by itself when it is woken.
    pub(super) fn is_level(&self) -> bool {
        self.phase == Phase::Open && self.out.is_empty()
    }

    /// Gives the connection back to whoever brought it.
    pub(super) fn give_back(self) {
        // If nobody waits for it any more it is closed.
        let _ = self.done.send(self.transport);
    }

    /// Writes a chunk that others get too. `None` if it is not what this client needs next.
    pub(super) fn take(&mut self, chunk: &SharedChunk) -> Option<Flow> {
        if !self
            .follower
            .takes(chunk.from, chunk.first, chunk.first_version)
        {
            return None;
        }
        self.follower
            .took(chunk.to, chunk.last, (chunk.events, chunk.len));
        let sent = if chunk.is_cut {
            Flow::Behind
        } else {
            Flow::Idle
        };
        let mut context = Context::from_waker(&self.waker);
        if chunk.pieces.count() == 1 {
            let bytes = chunk.pieces.chunk();
            let written = match self.transport.poll_send(&mut context, bytes) {
                Poll::Ready(Ok(written)) => written,
                Poll::Ready(Err(_)) => return Some(Flow::Gone),
                Poll::Pending => 0,
            };
            if written < bytes.len() {
                self.out = chunk.pieces.clone();
                self.out.advance(written);
            } else if self.transport.poll_flushed(&mut context).is_ready() {
                return Some(sent);
            } else {
                self.phase = Phase::Unflushed;
                return Some(Flow::Blocked);
            }
        } else {
            self.out = chunk.pieces.clone();
        }
        match self.poll_out() {
            Poll::Ready(Ok(())) => Some(sent),
            Poll::Ready(Err(_)) => Some(Flow::Gone),
            Poll::Pending => Some(Flow::Blocked),
        }
    }

    /// Hears the client, sends what there is in `turn` writes at most, and then does what is due by `now`.
    pub(super) fn wake(&mut self, now: Instant, turn: usize) -> Flow {
        let mut context = Context::from_waker(&self.waker);
        if self.done.poll_closed(&mut context).is_ready()
            || self.transport.poll_hear(&mut context).is_err()
        {
            return Flow::Gone;
        }
        // Asked here and not for each event: whoever revokes the permission wakes the stream. And a client who is always behind is
        // not served for ever.
        let _ = self.follower.is_revoked() || self.follower.is_overdue(now);
        let mut flow = self.drive(turn);
        if flow == Flow::Idle
            && self.follower.wake_at() <= now
            && let Timed::Bookmark(line) = self.follower.on_time(now)
        {
            self.out = chunked(line.into());
            flow = self.drive(turn);
        }
        self.wake_at = self.follower.wake_at();
        if flow == Flow::Idle && self.wake_at <= now {
            // Something came in between that the bookmark would run ahead of.
            self.wake_at = now + BOOKMARK_RETRY;
        }
        flow
    }

    /// Sends what there is, in `turn` writes at most.
    pub(super) fn drive(&mut self, turn: usize) -> Flow {
        // The group waits for batches; this is for what comes without one.
        self.follower.arm(&self.waker);
        if self.phase == Phase::Head {
            // What there is leaves with the head.
            if let Next::Frame(pieces) = self.follower.next() {
                self.out.append(chunked(pieces));
            }
            self.phase = Phase::Open;
        }
        for _ in 0..turn {
            match self.poll_out() {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Flow::Gone,
                Poll::Pending => return Flow::Blocked,
            }
            if self.phase == Phase::Ending {
                return Flow::Over;
            }
            match self.follower.next() {
                Next::Frame(pieces) => self.out = chunked(pieces),
                Next::Nothing => return Flow::Idle,
                Next::Unfinished => return Flow::Again,
                Next::Over => {
                    self.out = Bytes::from_static(LAST).into();
                    self.phase = Phase::Ending;
                }
            }
        }
        Flow::Again
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
        self.out = Pieces::default();
        let flushed = self.transport.poll_flushed(&mut context);
        match (flushed.is_pending(), self.phase) {
            (true, Phase::Open) => self.phase = Phase::Unflushed,
            (false, Phase::Unflushed) => self.phase = Phase::Open,
            _ => {}
        }
        flushed
    }
}
