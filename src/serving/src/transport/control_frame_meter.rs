//! Counts the HTTP/2 control frames that are read from a transport, and reports the resulting action to [`AbortLimit`].

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::transport::abort_limit::{AbortAction, AbortLimit, ControlFrames};

/// A transport that counts control frames.
#[derive(Debug)]
pub(crate) struct ControlFrameMeter<S> {
    transport: S,
    frames: ControlFrames,
    abort_limit: AbortLimit,
    /// The action reported last.
    action: AbortAction,
}

impl<S> ControlFrameMeter<S> {
    /// The first `preface_len` bytes of the transport are not frames.
    pub(crate) fn new(transport: S, preface_len: usize, abort_limit: AbortLimit) -> Self {
        Self {
            transport,
            frames: ControlFrames::new(preface_len, Instant::now()),
            abort_limit,
            action: AbortAction::Serve,
        }
    }

    fn written(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(len)) = polled {
            self.frames.written(len);
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ControlFrameMeter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.transport).poll_read(context, buffer);
        let action = this.frames.read(&buffer.filled()[before..], Instant::now);
        if action > this.action {
            this.action = action;
            this.abort_limit.record_frame_action(action);
        }
        if this.action == AbortAction::Cut {
            // What the library does not see, it does not keep: one turn of the connection may read a megabyte.
            buffer.set_filled(before);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ControlFrameMeter<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.transport).poll_write(context, bytes);
        self.written(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.transport).poll_write_vectored(context, slices);
        self.written(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(context)
    }
}
