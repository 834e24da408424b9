//! Joins everything that an HTTP/2 connection writes in one turn of its task into one write at the end of the turn.
//!
//! h2 writes and flushes every DATA frame separately: an event for a hundred streams of a connection would be a hundred writes. The delivery
//! workers write the frames of running watches between those of h2, and flush once a turn, too (decision 65).

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Buf;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame_heads::{DATA, END_STREAM, FrameHead, HEAD_LEN};
use super::http2::{Adoptions, InboundFrames, OutboundFrames, WriteSpan};

/// Bytes that are copied at most in one turn. A write that does not fit is sent at once, without copying, after the buffered bytes. Of
/// three DATA frames of 16 KiB (the largest frame that clients accept by default), one is sent this way. A smaller buffer causes more
/// writes, a larger one more copying.
const BUFFERED_LEN_MAX: usize = 36 << 10;
/// Slices of one write of h2 (`poll_write_buf` of tokio-util), and one for the buffered bytes.
const SLICES: usize = 65;
/// Every client accepts DATA frames of this length (RFC 9113 §6.5.2), bytes.
const FRAME_LEN_MAX: usize = 16 << 10;

/// A transport shared by h2, which writes to it, and [`CoalescedConnection`], which flushes it.
#[derive(Debug)]
pub(crate) struct WriteCoalescer<S>(Arc<Mutex<CoalescerState<S>>>);

#[derive(Debug)]
pub(super) struct CoalescerState<S> {
    transport: S,
    /// Accepted bytes; those from `at` on are not written yet. Freed when all are written.
    buffered: Vec<u8>,
    at: usize,
    /// Length of what was buffered when it was freed last. There will probably be as much again.
    last_len: usize,
    /// A failed write that was not reported to h2 yet.
    failed: Option<io::Error>,
    outbound: OutboundFrames,
    inbound: InboundFrames,
    pub(super) adoptions: Adoptions,
    /// Of the connection's task: it finishes what a worker could not write at once.
    task: Option<Waker>,
    /// A worker's frames wait for its turn to end.
    is_flush_due: bool,
}

impl<S> Clone for WriteCoalescer<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> WriteCoalescer<S> {
    /// The first `preface_len` bytes that are read are not frames.
    pub(crate) fn new(transport: S, preface_len: usize) -> Self {
        Self(Arc::new(Mutex::new(CoalescerState {
            transport,
            buffered: Vec::new(),
            at: 0,
            last_len: 0,
            failed: None,
            outbound: OutboundFrames::default(),
            inbound: InboundFrames::new(preface_len),
            adoptions: Adoptions::default(),
            task: None,
            is_flush_due: false,
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CoalescerState<S>> {
        self.0.lock()
    }
}

impl<S: AsyncWrite + Unpin> CoalescerState<S> {
    /// Accepts some of what h2 writes, and withholds what is not for the client.
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let adoptions = &self.adoptions;
        match self.outbound.span(slices, |head| adoptions.withholds(head)) {
            WriteSpan::Withheld(len) => {
                self.take(slices, len, true);
                Poll::Ready(Ok(len))
            }
            WriteSpan::Passed(len) => {
                let all: usize = slices.iter().map(|slice| slice.len()).sum();
                let accepted = match len == all {
                    true => ready!(self.poll_accept(context, slices))?,
                    false => ready!(self.poll_accept(context, &first(slices, len)))?,
                };
                self.take(slices, accepted, false);
                Poll::Ready(Ok(accepted))
            }
        }
    }

    fn take(&mut self, slices: &[IoSlice<'_>], len: usize, is_withheld: bool) {
        let adoptions = &mut self.adoptions;
        self.outbound
            .take(slices, len, is_withheld, |event| adoptions.written(event));
        self.wake_reader();
    }

    /// Lets h2 read what is given back to it.
    fn wake_reader(&mut self) {
        if let Some(task) = &self.task
            && !self.adoptions.given_back().is_empty()
        {
            task.wake_by_ref();
        }
    }

    /// The worker of an adopted stream is gone.
    pub(super) fn drop_worker(&mut self, key: usize) {
        self.adoptions.drop_worker(key);
        self.wake_reader();
    }

    /// The body of an adopted stream is gone.
    pub(super) fn drop_body(&mut self, key: usize) {
        self.adoptions.drop_body(key);
        self.wake_reader();
    }

    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.buffered.len() + len <= BUFFERED_LEN_MAX {
            if self.buffered.capacity() == 0 {
                self.buffered.reserve_exact(BUFFERED_LEN_MAX);
            }
            slices
                .iter()
                .for_each(|slice| self.buffered.extend_from_slice(slice));
            return Poll::Ready(Ok(len));
        }
        while self.at < self.buffered.len() {
            let before = &self.buffered[self.at..];
            let mut all: SmallVec<[IoSlice<'_>; SLICES]> = SmallVec::new();
            all.push(IoSlice::new(before));
            all.extend(slices.iter().map(|slice| IoSlice::new(slice)));
            let sent = Pin::new(&mut self.transport).poll_write_vectored(context, &all);
            let written = nonzero(ready!(sent)?)?;
            let more = written.saturating_sub(before.len());
            drop(all);
            self.at += written - more;
            if more > 0 {
                self.release_buffer();
                return Poll::Ready(Ok(more));
            }
        }
        self.release_buffer();
        Pin::new(&mut self.transport).poll_write_vectored(context, slices)
    }

    /// Writes the buffered bytes and flushes the transport.
    fn poll_flush_buffered(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.at < self.buffered.len() {
            let buffered = &self.buffered[self.at..];
            let sent = Pin::new(&mut self.transport).poll_write(context, buffered);
            self.at += nonzero(ready!(sent)?)?;
        }
        self.release_buffer();
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn release_buffer(&mut self) {
        if !self.buffered.is_empty() {
            self.last_len = self.buffered.len();
        }
        (self.buffered, self.at) = (Vec::new(), 0);
    }

    /// Writes what a worker has added. What the socket does not take now is left to the connection's task, and so is a failure.
    fn flush_for_worker(&mut self) {
        self.is_flush_due = false;
        let Some(task) = self.task.clone() else {
            return;
        };
        let mut context = Context::from_waker(&task);
        if let Poll::Ready(Err(error)) = self.poll_flush_buffered(&mut context) {
            self.failed = Some(error);
            task.wake();
        }
    }

    /// Defers the flush of what a worker has added to the end of its turn; returns whether none was deferred before, so that the caller needs
    /// a [`DueFlush`].
    #[must_use]
    pub(super) const fn defer_flush(&mut self) -> bool {
        !std::mem::replace(&mut self.is_flush_due, true)
    }

    /// Adds as many DATA frames of an adopted stream as there is room for. Pending if something remains: the worker is woken when it may go
    /// on.
    ///
    /// # Errors
    /// If the stream or the connection is over.
    pub(super) fn poll_add_data(
        &mut self,
        key: usize,
        data: &mut impl Buf,
    ) -> Poll<io::Result<()>> {
        while data.has_remaining() {
            if self.failed.is_some() || self.adoptions.is_over(key) {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let needed = data.remaining();
            let Some((stream, room)) = self.adoptions.room(key, needed) else {
                return Poll::Pending;
            };
            let len = room.min(FRAME_LEN_MAX);
            if !self.has_room(HEAD_LEN + len) {
                self.adoptions.wait_for_turn(key);
                return Poll::Pending;
            }
            self.add_head(stream, len, 0);
            let mut left = len;
            while left > 0 {
                let piece = data.chunk();
                let piece = &piece[..piece.len().min(left)];
                self.buffered.extend_from_slice(piece);
                left -= piece.len();
                data.advance(piece.len());
            }
            self.adoptions.spend(key, len);
        }
        Poll::Ready(Ok(()))
    }

    /// Adds the end of an adopted stream; pending as above.
    ///
    /// # Errors
    /// If the stream or the connection is over.
    pub(super) fn poll_add_end(&mut self, key: usize) -> Poll<io::Result<()>> {
        if self.failed.is_some() || self.adoptions.is_over(key) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let Some(stream) = self.adoptions.stream(key) else {
            return Poll::Pending;
        };
        if !self.has_room(HEAD_LEN) {
            self.adoptions.wait_for_turn(key);
            return Poll::Pending;
        }
        self.add_head(stream, 0, END_STREAM);
        self.adoptions.finish(key);
        Poll::Ready(Ok(()))
    }

    fn set_task(&mut self, waker: &Waker) {
        match &mut self.task {
            Some(task) => task.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Lets the workers go on that waited for h2, or for the socket.
    fn end_turn(&mut self) {
        if self.failed.is_some() || self.buffered.is_empty() && self.outbound.is_between_frames() {
            self.adoptions.end_turn();
        }
    }

    /// Whether a worker may add so many bytes now. Writes what is buffered if that makes the room.
    fn has_room(&mut self, len: usize) -> bool {
        if self.buffered.len() + len > BUFFERED_LEN_MAX {
            self.flush_for_worker();
        }
        self.outbound.is_between_frames() && self.buffered.len() + len <= BUFFERED_LEN_MAX
    }

    fn add_head(&mut self, stream: u32, len: usize, flags: u8) {
        let head = FrameHead {
            len,
            kind: DATA,
            flags,
            stream,
        };
        let more = HEAD_LEN + len;
        match self.buffered.capacity() {
            0 => self.buffered.reserve_exact(self.last_len.max(more)),
            _ => self.buffered.reserve(more),
        }
        self.buffered.extend_from_slice(&head.encoded());
    }
}

/// The first `len` bytes of the slices.
fn first<'a>(slices: &'a [IoSlice<'_>], mut len: usize) -> SmallVec<[IoSlice<'a>; SLICES]> {
    let parts = slices.iter().map_while(|slice| {
        let part = &slice[..slice.len().min(len)];
        len -= part.len();
        (!part.is_empty()).then(|| IoSlice::new(part))
    });
    parts.collect()
}

/// An error if nothing was written.
fn nonzero(written: usize) -> io::Result<usize> {
    match written {
        0 => Err(io::ErrorKind::WriteZero.into()),
        written => Ok(written),
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteCoalescer<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let state = &mut *self.state();
        let given_back = state.adoptions.given_back();
        if !given_back.is_empty() && state.inbound.is_between_frames() {
            let len = given_back.len().min(buffer.remaining());
            buffer.put_slice(&given_back[..len]);
            given_back.drain(..len);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut state.transport).poll_read(context, buffer))?;
        let adoptions = &mut state.adoptions;
        state.inbound.read(&buffer.filled()[before..], |event| {
            adoptions.received(event);
        });
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteCoalescer<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.state().poll_write(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.state().poll_write(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing but report a failure: the buffer is written when the turn ends.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        state.adoptions.flushed();
        Poll::Ready(state.failed.take().map_or(Ok(()), Err))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        ready!(state.poll_flush_buffered(context))?;
        Pin::new(&mut state.transport).poll_shutdown(context)
    }
}

/// Frames of workers that wait for the end of the worker's turn. They are written when this is dropped.
#[derive(Debug)]
pub(crate) struct DueFlush<S: AsyncWrite + Unpin>(WriteCoalescer<S>);

impl<S: AsyncWrite + Unpin> WriteCoalescer<S> {
    /// The flush that a worker has [deferred](CoalescerState::defer_flush).
    pub(super) fn due_flush(&self) -> DueFlush<S> {
        DueFlush(self.clone())
    }
}

impl<S: AsyncWrite + Unpin> Drop for DueFlush<S> {
    fn drop(&mut self) {
        self.0.state().flush_for_worker();
    }
}

/// Runs a connection over a [`WriteCoalescer`], and flushes it at the end of each turn.
///
/// It yields once after a wake-up, so that the connection's other streams run first: a batch wakes many streams, the first one that runs
/// wakes the connection, and the runtime would run the connection before the other streams.
#[derive(Debug)]
pub(crate) struct CoalescedConnection<'a, C, S> {
    connection: Pin<&'a mut C>,
    coalescer: WriteCoalescer<S>,
    /// Whether the task has yielded since it was woken.
    has_yielded: bool,
}

impl<'a, C, S> CoalescedConnection<'a, C, S> {
    pub(crate) fn new(connection: Pin<&'a mut C>, coalescer: WriteCoalescer<S>) -> Self {
        Self {
            connection,
            coalescer,
            has_yielded: false,
        }
    }

    /// The connection that it runs.
    pub(crate) fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C: Future, S: AsyncWrite + Unpin> Future for CoalescedConnection<'_, C, S> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        let this = &mut *self;
        this.has_yielded = !this.has_yielded;
        if this.has_yielded {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.coalescer.state().set_task(context.waker());
        if let Poll::Ready(ended) = this.connection.as_mut().poll(context) {
            return Poll::Ready(ended);
        }
        let mut state = this.coalescer.state();
        if let Poll::Ready(Err(error)) = state.poll_flush_buffered(context) {
            // The connection is polled again, gets the error, and ends.
            state.failed = Some(error);
            context.waker().wake_by_ref();
        }
        state.end_turn();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
