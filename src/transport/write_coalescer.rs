//! What an HTTP/2 connection says while its task runs, written together when the task pauses. Says nothing by itself.
//!
//! h2 writes, and flushes, every DATA frame on its own: an event for a hundred streams of a connection was a hundred writes.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So much is copied at most until the connection's task pauses; what comes then leaves with it, as it is: of three DATA frames of
/// 16 KiB, which a client takes if it does not say otherwise, one. Fewer make more writes, more cost more copying.
const KEPT_LEN_MAX: usize = 36 << 10;
/// Slices of one write of h2 (`poll_write_buf` of tokio-util), and what came before.
const SLICES: usize = 65;

/// A transport as h2 has it; [`CoalescedConnection`] has it, too.
#[derive(Debug)]
pub(crate) struct WriteCoalescer<S>(Arc<Mutex<CoalescerState<S>>>);

#[derive(Debug)]
struct CoalescerState<S> {
    transport: S,
    /// Said, and not written from `at` on. Given back when it is.
    kept: Vec<u8>,
    at: usize,
    /// Why nothing can be written any more, until h2 has heard of it.
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
            kept: Vec::new(),
            at: 0,
            failed: None,
        })))
    }

    fn turn(&self) -> MutexGuard<'_, CoalescerState<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        if self.kept.len() + len <= KEPT_LEN_MAX {
            if self.kept.capacity() == 0 {
                self.kept.reserve_exact(KEPT_LEN_MAX);
            }
            slices
                .iter()
                .for_each(|slice| self.kept.extend_from_slice(slice));
            return Poll::Ready(Ok(len));
        }
        while self.at < self.kept.len() {
            let before = &self.kept[self.at..];
            let mut all: SmallVec<[IoSlice<'_>; SLICES]> = SmallVec::new();
            all.push(IoSlice::new(before));
            all.extend(slices.iter().map(|slice| IoSlice::new(slice)));
            let sent = Pin::new(&mut self.transport).poll_write_vectored(context, &all);
            let written = some(ready!(sent)?)?;
            let more = written.saturating_sub(before.len());
            drop(all);
            self.at += written - more;
            if more > 0 {
                self.let_go();
                return Poll::Ready(Ok(more));
            }
        }
        self.let_go();
        Pin::new(&mut self.transport).poll_write_vectored(context, slices)
    }

    /// Writes what is kept, and flushes.
    fn poll_leave(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.at < self.kept.len() {
            let kept = &self.kept[self.at..];
            let sent = Pin::new(&mut self.transport).poll_write(context, kept);
            self.at += some(ready!(sent)?)?;
        }
        self.let_go();
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn let_go(&mut self) {
        (self.kept, self.at) = (Vec::new(), 0);
    }
}

/// What was written, if it was something.
fn some(written: usize) -> io::Result<usize> {
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
        Pin::new(&mut self.turn().transport).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteCoalescer<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.turn().poll_write(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.turn().poll_write(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing yet: all leaves when the turn ends.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.turn().failed.take().map_or(Ok(()), Err))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut turn = self.turn();
        ready!(turn.poll_leave(context))?;
        Pin::new(&mut turn.transport).poll_shutdown(context)
    }
}

/// Runs a connection over [`WriteCoalescer`], and ends its turns.
///
/// Who is woken goes last: a batch wakes many streams of a connection, and the first that runs wakes the connection, which
/// the runtime would prefer to the others.
#[derive(Debug)]
pub(crate) struct CoalescedConnection<'a, C, S> {
    connection: Pin<&'a mut C>,
    gathered: WriteCoalescer<S>,
    /// Whether others had their turn since it was woken.
    is_last: bool,
}

impl<'a, C, S> CoalescedConnection<'a, C, S> {
    pub(crate) fn new(connection: Pin<&'a mut C>, gathered: WriteCoalescer<S>) -> Self {
        Self {
            connection,
            gathered,
            is_last: false,
        }
    }

    /// What runs.
    pub(crate) fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C: Future, S: AsyncWrite + Unpin> Future for CoalescedConnection<'_, C, S> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        let this = &mut *self;
        this.is_last = !this.is_last;
        if this.is_last {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(ended) = this.connection.as_mut().poll(context) {
            return Poll::Ready(ended);
        }
        let mut turn = this.gathered.turn();
        if let Poll::Ready(Err(error)) = turn.poll_leave(context) {
            // Polled again, the connection hears of it, and ends.
            turn.failed = Some(error);
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
