//! The stream of one client: its connection, its cursor, and the data that is being written.

use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::time::Instant;

use super::chunk::SharedChunk;
use super::client_stream::ClientStream;
use crate::protocol::BufList;
use crate::transport::StreamFlush;
use crate::transport::stall::STALL_TIMEOUT;
use crate::watch::{CursorStep, SharedBatches, TimerAction, WatchCursor};

/// When to retry a bookmark that could not be sent because events came first.
const BOOKMARK_RETRY: Duration = Duration::from_secs(1);

/// The stream of one client.
#[derive(Debug)]
pub(super) struct DeliveryStream {
    client: ClientStream,
    cursor: WatchCursor,
    /// Wakes the worker for this stream only.
    waker: Waker,
    /// Data being written. The cursor is not advanced before all of it is written.
    out: BufList,
    phase: DeliveryPhase,
    /// Since when the client takes nothing, if the stream must notice it by itself.
    blocked: Option<Instant>,
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
        mut client: ClientStream,
        head: Bytes,
        mut cursor: WatchCursor,
        waker: Waker,
    ) -> Self {
        // Arm once: a stream's waker never changes.
        cursor.arm_lease(&waker);
        cursor.arm_recall(&waker);
        client.set_waker(&waker);
        Self {
            wake_at: cursor.wake_at(),
            client,
            cursor,
            waker,
            out: head.into(),
            phase: DeliveryPhase::Head,
            blocked: None,
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
        self.phase == DeliveryPhase::Open && self.out.is_empty() && !self.cursor.waits_for_block()
    }

    /// Returns the connection to the caller of `deliver`.
    pub(super) fn return_connection(self) {
        self.client.finish();
    }

    /// Drops the connection, and the watch as one that its client has left or has stopped reading.
    pub(super) fn drop_connection(self) {
        if self.client.has_stalled() || self.is_overdue(Instant::now()) {
            self.client.cut(self.cursor);
        }
    }

    /// Whether the stream must be visited when its client takes nothing: nobody else measures for how long.
    pub(super) const fn must_watch_progress(&self) -> bool {
        self.client.must_watch_progress()
    }

    /// A flush for the end of the worker's turn.
    pub(super) fn take_due_flush(&mut self) -> Option<StreamFlush> {
        self.client.take_due_flush()
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
    pub(super) fn send_shared(&mut self, chunk: &mut SharedChunk) -> Option<StreamProgress> {
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
        let whole = match self.cursor.compression() {
            Some(compression) => chunk.compressed(compression),
            None => chunk.plain(),
        };
        let mut context = Context::from_waker(&self.waker);
        let sent = self
            .client
            .poll_send_shared(&mut context, whole, &mut self.out);
        self.blocked = None;
        let sent = match sent {
            Poll::Ready(Ok(())) => self.poll_out(),
            Poll::Ready(Err(_)) | Poll::Pending => sent,
        };
        match sent {
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
        if self.client.has_left(&mut context) {
            return StreamProgress::Gone;
        }
        // Check here and not for each event, because a revocation wakes the stream. The deadline is checked, too, so that the
        // stream of a client that is always behind ends.
        let _ = self.cursor.is_revoked() || self.cursor.is_overdue(now);
        let mut progress = self.drive(writes_max);
        if progress == StreamProgress::Idle && self.cursor.wake_at() <= now {
            match self.cursor.on_timer(now) {
                TimerAction::Bookmark(line) => {
                    self.out = self.client.framed(line);
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
        self.heed_progress(progress, now)
    }

    /// Ends the stream of a client that takes nothing for too long, if nobody else notices.
    fn heed_progress(&mut self, progress: StreamProgress, now: Instant) -> StreamProgress {
        if progress != StreamProgress::Blocked || !self.client.must_watch_progress() {
            self.blocked = None;
            return progress;
        }
        let since = *self.blocked.get_or_insert(now);
        if self.is_overdue(now) {
            return StreamProgress::Gone;
        }
        let due = since + STALL_TIMEOUT;
        self.wake_at = match self.wake_at > now {
            true => self.wake_at.min(due),
            false => due,
        };
        progress
    }

    fn is_overdue(&self, now: Instant) -> bool {
        self.blocked
            .is_some_and(|since| now >= since + STALL_TIMEOUT)
    }

    /// Sends what is available, in at most `writes_max` writes.
    pub(super) fn drive(&mut self, writes_max: usize) -> StreamProgress {
        // The group waits for batches; this waits for a version that is reached without one.
        self.cursor.arm(&self.waker);
        if self.phase == DeliveryPhase::Head {
            // Send the first frame together with the head.
            if let CursorStep::Frame(buf) = self.cursor.next() {
                self.out.append(self.client.framed(buf));
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
                CursorStep::Frame(buf) => self.out = self.client.framed(buf),
                CursorStep::Nothing if self.cursor.arm_block(&self.waker) => {}
                CursorStep::Nothing => return StreamProgress::Idle,
                CursorStep::Unfinished => return StreamProgress::Again,
                CursorStep::Over => {
                    self.out = self.client.last();
                    self.phase = DeliveryPhase::Ending;
                }
            }
        }
        StreamProgress::Again
    }

    fn poll_out(&mut self) -> Poll<io::Result<()>> {
        let mut context = Context::from_waker(&self.waker);
        let before = self.out.remaining();
        let sent = self.client.poll_send(&mut context, &mut self.out);
        if self.out.remaining() < before {
            self.blocked = None;
        }
        std::task::ready!(sent)?;
        if self.phase == DeliveryPhase::Ending {
            std::task::ready!(self.client.poll_send_end())?;
        }
        // Release the memory of the list, too.
        self.out = BufList::default();
        let flushed = self.client.poll_flushed(&mut context);
        match (flushed.is_pending(), self.phase) {
            (true, DeliveryPhase::Open) => self.phase = DeliveryPhase::Unflushed,
            (false, DeliveryPhase::Unflushed) => self.phase = DeliveryPhase::Open,
            _ => {}
        }
        flushed
    }
}
