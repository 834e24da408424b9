//! The stream of one client: its connection, its cursor, and the data that is being written.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::chunk::{LAST, SharedChunk, chunked};
use crate::protocol::BufList;
use crate::transport::{Transport, stall};
use crate::watch::{CursorStep, SharedBatches, TimerAction, WatchCursor};

/// When to retry a bookmark that could not be sent because events came first.
const BOOKMARK_RETRY: Duration = Duration::from_secs(1);
/// Maximum number of slices of one vectored write.
const SLICES_MAX: usize = 256;

/// The stream of one client.
#[derive(Debug)]
pub(super) struct DeliveryStream {
    transport: Transport,
    cursor: WatchCursor,
    /// Wakes the worker for this stream only.
    waker: Waker,
    /// Data being written. The cursor is not advanced before all of it is written.
    out: BufList,
    phase: DeliveryPhase,
    done: oneshot::Sender<Transport>,
    /// The key of its group, and its index in the group.
    pub(super) group: usize,
    pub(super) group_index: usize,
    /// The time that its timer is set to.
    pub(super) wake_at: Instant,
    /// The number of its entry in the worker's backlog, if it has one.
    pub(super) backlog_entry: Option<u64>,
}

/// ```text
/// Head ── joined by the first frame ──▶ Open ── the watch ends ──▶ Ending ── all is written ──▶ connection returned
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeliveryPhase {
    /// Nothing is written yet.
    Head,
    Open,
    /// All data is written, but a lower layer such as TLS may still hold some of it.
    Unflushed,
    /// The last chunk is being written.
    Ending,
}

/// The state of a stream after a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamProgress {
    /// The client has everything that the view shows.
    Idle,
    /// The client has the shared chunk, but the view has more: its group needs another pass.
    Behind,
    /// The connection takes nothing now; the stream will be woken.
    Blocked,
    /// Its turn is used up, and there is more to send or to search.
    Again,
    /// The watch has ended, and everything is written.
    Over,
    /// The client has disconnected.
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
        // Arm once: a stream's waker never changes.
        cursor.arm_lease(&waker);
        cursor.arm_recall(&waker);
        Self {
            wake_at: cursor.wake_at(),
            transport,
            cursor,
            waker,
            out: head.into(),
            phase: DeliveryPhase::Head,
            done,
            group: 0,
            group_index: 0,
            backlog_entry: None,
        }
    }

    pub(super) fn cursor(&self) -> &WatchCursor {
        &self.cursor
    }

    /// Whether the stream gets its group's shared chunks. If not, it reads by itself when it is woken.
    pub(super) fn is_caught_up(&self) -> bool {
        self.phase == DeliveryPhase::Open && self.out.is_empty()
    }

    /// Returns the connection to the caller of `deliver`.
    pub(super) fn return_connection(self) {
        // If the caller is gone, the connection is closed.
        let _ = self.done.send(self.transport);
    }

    /// Drops the connection, and the watch as one that its client has left or has stopped reading.
    pub(super) fn drop_connection(self) {
        if self.transport.traffic().has_stalled() {
            let Self {
                transport,
                cursor,
                done,
                ..
            } = self;
            stall::cut(cursor);
            // The caller of `deliver` learns from it why the watch has ended.
            let _ = done.send(transport);
        }
    }

    /// Draws the time of the stream's end if its view has a schedule; returns the time if the stream's timer must be set to it.
    pub(super) fn schedule_end(&mut self) -> Option<Instant> {
        self.cursor.schedule_end();
        // The cursor may have drawn it already, while it was read for an event.
        let wake_at = self.cursor.wake_at();
        (wake_at < self.wake_at).then(|| {
            self.wake_at = wake_at;
            wake_at
        })
    }

    /// Writes a shared chunk. `None` if it is not what this client needs next.
    pub(super) fn send_shared(&mut self, chunk: &SharedChunk) -> Option<StreamProgress> {
        if !self
            .cursor
            .can_take(chunk.from, chunk.first, chunk.first_version)
        {
            return None;
        }
        self.cursor.advance(SharedBatches {
            to: chunk.to,
            last: chunk.last,
            last_version: chunk.last_version,
            events: chunk.events,
            bytes: chunk.len,
        });
        let progress = if chunk.has_more {
            StreamProgress::Behind
        } else {
            StreamProgress::Idle
        };
        let mut context = Context::from_waker(&self.waker);
        if chunk.buf.count() == 1 {
            let bytes = chunk.buf.chunk();
            let written = match self.transport.poll_send(&mut context, bytes) {
                Poll::Ready(Ok(written)) => written,
                Poll::Ready(Err(_)) => return Some(StreamProgress::Gone),
                Poll::Pending => 0,
            };
            if written < bytes.len() {
                self.out = chunk.buf.clone();
                self.out.advance(written);
            } else if self.transport.poll_flushed(&mut context).is_ready() {
                self.cursor.note_taken();
                return Some(progress);
            } else {
                self.phase = DeliveryPhase::Unflushed;
                return Some(StreamProgress::Blocked);
            }
        } else {
            self.out = chunk.buf.clone();
        }
        match self.poll_out() {
            Poll::Ready(Ok(())) => {
                self.cursor.note_taken();
                Some(progress)
            }
            Poll::Ready(Err(_)) => Some(StreamProgress::Gone),
            Poll::Pending => Some(StreamProgress::Blocked),
        }
    }

    /// Reads from the client, sends what is available in at most `writes_max` writes, and then does what is due at `now`.
    pub(super) fn wake(&mut self, now: Instant, writes_max: usize) -> StreamProgress {
        self.cursor.follow_recall(&self.waker);
        let mut context = Context::from_waker(&self.waker);
        if self.done.poll_closed(&mut context).is_ready()
            || self.transport.poll_hear(&mut context).is_err()
        {
            return StreamProgress::Gone;
        }
        // Check here and not for each event, because a revocation wakes the stream. The deadline is checked, too, so that the
        // stream of a client that is always behind ends.
        let _ = self.cursor.is_revoked() || self.cursor.is_overdue(now);
        let mut progress = self.drive(writes_max);
        if progress == StreamProgress::Idle && self.cursor.wake_at() <= now {
            match self.cursor.on_timer(now) {
                TimerAction::Bookmark(line) => {
                    self.out = chunked(line.into());
                    progress = self.drive(writes_max);
                }
                TimerAction::Ended => progress = self.drive(writes_max),
                TimerAction::Nothing => {}
            }
        }
        self.wake_at = self.cursor.wake_at();
        if progress == StreamProgress::Idle && self.wake_at <= now {
            // An event came first, which the bookmark would have overtaken.
            self.wake_at = now + BOOKMARK_RETRY;
        }
        progress
    }

    /// Sends what is available, in at most `writes_max` writes.
    pub(super) fn drive(&mut self, writes_max: usize) -> StreamProgress {
        // The group waits for batches; this waits for a version that is reached without one.
        self.cursor.arm(&self.waker);
        if self.phase == DeliveryPhase::Head {
            // Send the first frame together with the head.
            if let CursorStep::Frame(buf) = self.cursor.next() {
                self.out.append(chunked(buf));
            }
            self.phase = DeliveryPhase::Open;
        }
        for _ in 0..writes_max {
            match self.poll_out() {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return StreamProgress::Gone,
                Poll::Pending => return StreamProgress::Blocked,
            }
            if self.phase == DeliveryPhase::Ending {
                return StreamProgress::Over;
            }
            match self.cursor.next() {
                CursorStep::Frame(buf) => self.out = chunked(buf),
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
        // Release the memory of the list, too.
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
