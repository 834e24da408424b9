//! What a watch is written to: the client's whole connection over HTTP/1.1, or a stream of it over HTTP/2.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use tokio::sync::oneshot;

use super::chunk::{FramedChunk, LAST, chunked};
use crate::protocol::BufList;
use crate::transport::{AdoptedStream, StreamFlush, Transport, stall};
use crate::watch::WatchCursor;

/// Maximum number of slices of one vectored write.
const SLICES_MAX: usize = 256;

/// What a watch is written to.
#[derive(Debug)]
pub(super) enum ClientStream {
    Http1 {
        transport: Transport,
        /// Returns the connection to the caller of `deliver`.
        done: oneshot::Sender<Transport>,
    },
    Http2(AdoptedStream),
}

impl ClientStream {
    /// Wakes this from now on whenever the client may take more.
    pub(super) fn set_waker(&mut self, waker: &Waker) {
        if let Self::Http2(stream) = self {
            stream.set_waker(waker);
        }
    }

    /// Reads what the client says; returns whether it has left.
    pub(super) fn has_left(&mut self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Http1 { transport, done } => {
                done.poll_closed(context).is_ready() || transport.poll_hear(context).is_err()
            }
            // h2 reads from the client, and ends the stream's body.
            Self::Http2(stream) => stream.is_over(),
        }
    }

    /// Whether the client has stopped reading.
    pub(super) fn has_stalled(&self) -> bool {
        match self {
            Self::Http1 { transport, .. } => transport.traffic().has_stalled(),
            Self::Http2(stream) => stream.has_stalled(),
        }
    }

    /// Whether nobody but the stream itself notices that its client takes nothing. Of a connection, the kernel notices.
    pub(super) const fn must_watch_progress(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Events as they are sent to this client.
    pub(super) fn framed(&self, events: BufList) -> BufList {
        match self {
            Self::Http1 { .. } => chunked(events),
            Self::Http2(_) => events,
        }
    }

    /// What is sent after the last event.
    pub(super) fn last(&self) -> BufList {
        match self {
            Self::Http1 { .. } => Bytes::from_static(LAST).into(),
            Self::Http2(_) => BufList::default(),
        }
    }

    /// Sends `out`, and removes what is sent. Pending if something remains: the stream is woken.
    ///
    /// # Errors
    /// If the client has left.
    pub(super) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        out: &mut BufList,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Http1 { transport, .. } => {
                while out.has_remaining() {
                    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                    let count = out.chunks_vectored(&mut slices);
                    let written = transport.poll_send_vectored(context, &slices[..count]);
                    out.advance(std::task::ready!(written)?);
                }
                Poll::Ready(Ok(()))
            }
            Self::Http2(stream) => stream.poll_send(out),
        }
    }

    /// Sends a shared chunk; leaves in `out` what remains of it.
    ///
    /// # Errors
    /// If the client has left.
    pub(super) fn poll_send_shared(
        &mut self,
        context: &mut Context<'_>,
        chunk: &FramedChunk,
        out: &mut BufList,
    ) -> Poll<io::Result<()>> {
        let whole = match self {
            Self::Http1 { .. } => &chunk.buf,
            Self::Http2(_) => &chunk.unframed,
        };
        let mut written = 0;
        if whole.count() == 1 {
            // Without a copy of the list, unless something remains.
            let bytes = whole.chunk();
            written = match self {
                Self::Http1 { transport, .. } => match transport.poll_send(context, bytes) {
                    Poll::Ready(written) => written?,
                    Poll::Pending => 0,
                },
                Self::Http2(stream) => {
                    let mut rest = bytes;
                    if let Poll::Ready(sent) = stream.poll_send(&mut rest) {
                        sent?;
                    }
                    bytes.len() - rest.len()
                }
            };
            if written == bytes.len() {
                return Poll::Ready(Ok(()));
            }
        }
        *out = whole.clone();
        out.advance(written);
        self.poll_send(context, out)
    }

    /// Flushes what TLS has buffered.
    ///
    /// # Errors
    /// If the connection fails.
    pub(super) fn poll_flushed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Http1 { transport, .. } => transport.poll_flushed(context),
            Self::Http2(_) => Poll::Ready(Ok(())),
        }
    }

    /// Sends the end of the stream, when everything else is sent.
    ///
    /// # Errors
    /// If the client has left.
    pub(super) fn poll_send_end(&mut self) -> Poll<io::Result<()>> {
        match self {
            Self::Http1 { .. } => Poll::Ready(Ok(())),
            Self::Http2(stream) => stream.poll_send_end(),
        }
    }

    /// A flush for the end of the worker's turn.
    pub(super) fn take_due_flush(&mut self) -> Option<StreamFlush> {
        match self {
            Self::Http1 { .. } => None,
            Self::Http2(stream) => stream.take_due_flush(),
        }
    }

    /// Returns the connection to the caller of `deliver`.
    pub(super) fn finish(self) {
        if let Self::Http1 { transport, done } = self {
            // If the caller is gone, the connection is closed.
            let _ = done.send(transport);
        }
    }

    /// Ends the watch as one whose client has stopped reading.
    pub(super) fn cut(self, cursor: WatchCursor) {
        stall::cut(cursor);
        match self {
            // The caller of `deliver` learns from the connection why the watch has ended.
            Self::Http1 { transport, done } => {
                let _ = done.send(transport);
            }
            Self::Http2(stream) => stream.cut(),
        }
    }
}
