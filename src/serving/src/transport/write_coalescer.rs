//! Joins everything that an HTTP/2 connection writes in one turn of its task into one write at the end of the turn.
//!
//! h2 writes and flushes every DATA frame separately: an event for a hundred streams of a connection would be a hundred writes.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are copied at most in one turn. A write that does not fit is sent at once, without copying, after the buffered bytes. Of
/// three DATA frames of 16 KiB (the largest frame that clients accept by default), one is sent this way. A smaller buffer causes more
/// writes, a larger one more copying.
const BUFFERED_LEN_MAX: usize = 36 << 10;
/// Slices of one write of h2 (`poll_write_buf` of tokio-util), and one for the buffered bytes.
const SLICES: usize = 65;

/// A transport shared by h2, which writes to it, and [`CoalescedConnection`], which flushes it.
#[derive(Debug)]
pub(crate) struct WriteCoalescer<S>(Arc<Mutex<CoalescerState<S>>>);

#[derive(Debug)]
struct CoalescerState<S> {
    transport: S,
    /// Accepted bytes; those from `at` on are not written yet. Freed when all are written.
    buffered: Vec<u8>,
    at: usize,
    /// A failed write that was not reported to h2 yet.
    failed: Option<io::Error>,
}

impl<S> Clone for WriteCoalescer<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> WriteCoalescer<S> {
    pub(crate) fn new(transport: S) -> Self {
        Self(Arc::new(Mutex::new(CoalescerState {
            transport,
            buffered: Vec::new(),
            at: 0,
            failed: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, CoalescerState<S>> {
        self.0.lock()
    }
}

impl<S: AsyncWrite + Unpin> CoalescerState<S> {
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
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
        (self.buffered, self.at) = (Vec::new(), 0);
    }
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
        Pin::new(&mut self.state().transport).poll_read(context, buffer)
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
        Poll::Ready(self.state().failed.take().map_or(Ok(()), Err))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state();
        ready!(state.poll_flush_buffered(context))?;
        Pin::new(&mut state.transport).poll_shutdown(context)
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
        if let Poll::Ready(ended) = this.connection.as_mut().poll(context) {
            return Poll::Ready(ended);
        }
        let mut state = this.coalescer.state();
        if let Poll::Ready(Err(error)) = state.poll_flush_buffered(context) {
            // The connection is polled again, gets the error, and ends.
            state.failed = Some(error);
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
