//! A watch over WebSocket (docs/PROTOCOL.md §4.13): the same stream as over HTTP, with one WebSocket message per event. A [`Socket`] pulls
//! events from the watch and sends them, and handles the client's frames.
//!
//! It needs no queue and no task of its own: the connection's task runs it once HTTP has ended on the connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::protocol::BufList;
use crate::protocol::websocket::{
    ClientFrames, CloseCode, ControlRequest, EventFrames, Framing, close, pong,
};
use crate::transport::stall;

/// Bytes per read; clients send little. The buffer is on the stack of each read.
const READ_LEN: usize = 512;
/// Slices per vectored write at most.
const SLICES_MAX: usize = 64;

/// The events to send, as the body of a watch over HTTP.
pub(crate) type StreamBody = UnsyncBoxBody<BufList, Box<dyn std::error::Error + Send + Sync>>;

/// An accepted WebSocket upgrade and the body to send on it.
#[derive(Debug)]
pub struct Socket {
    connection: OnUpgrade,
    body: StreamBody,
    framing: Framing,
}

impl Socket {
    pub(crate) const fn new(connection: OnUpgrade, body: StreamBody, framing: Framing) -> Self {
        Self {
            connection,
            body,
            framing,
        }
    }

    /// Serves the socket until either side ends it. Dropping the future closes the connection.
    pub async fn run(self: Box<Self>) {
        let Self {
            connection,
            body,
            framing,
        } = *self;
        match connection.await {
            Ok(stream) => {
                let mut io = Box::pin(SocketIo::new(TokioIo::new(stream), body, framing));
                if let Err(error) = io.as_mut().await {
                    tracing::debug!(%error, "a WebSocket connection failed");
                    if error.kind() == io::ErrorKind::TimedOut {
                        stall::cut(io);
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "a WebSocket upgrade failed"),
        }
    }
}

/// The protocol of an open WebSocket, as a future that completes when the connection is shut down.
///
/// ```text
/// Open ── the body ends, or the client closes, disconnects or violates the protocol ──▶ Ending
/// Ending ── the close frame is queued ──▶ Closing ── all frames are written ──▶ done
/// ```
pub(crate) struct SocketIo<S> {
    stream: S,
    body: StreamBody,
    events: EventFrames,
    client: ClientFrames,
    /// Frames being written. Nothing is pulled from the body until they are sent.
    out: BufList,
    /// The payload of the pong to send. If several pings arrive in the meantime, only the newest is answered (RFC 6455 §5.5.3).
    pinged: Option<Bytes>,
    state: SocketState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketState {
    Open,
    /// The close frame follows the frames that are being written.
    Ending(CloseCode),
    Closing,
}

impl<S: AsyncRead + AsyncWrite + Unpin> SocketIo<S> {
    pub(crate) fn new(stream: S, body: StreamBody, framing: Framing) -> Self {
        Self {
            stream,
            body,
            events: EventFrames::new(framing),
            client: ClientFrames::default(),
            out: BufList::default(),
            pinged: None,
            state: SocketState::Open,
        }
    }

    /// Drops the watch now; the connection closes when the frames in `out` and the close frame are written.
    fn end(&mut self, code: CloseCode) {
        self.state = SocketState::Ending(code);
        self.body = no_body();
    }

    /// Reads all that the client has sent. Also notices that the client has disconnected.
    fn poll_hear(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.state == SocketState::Open {
            let mut space = [0; READ_LEN];
            let mut buffer = ReadBuf::new(&mut space);
            let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, &mut buffer)
            else {
                break;
            };
            read?;
            if buffer.filled().is_empty() {
                self.end(CloseCode::Normal);
            }
            let mut bytes = buffer.filled();
            while let Some(received) = self.client.next(&mut bytes) {
                match received {
                    ControlRequest::Ping(payload) => self.pinged = Some(payload),
                    ControlRequest::Close => self.end(CloseCode::Normal),
                    ControlRequest::Unmasked => self.end(CloseCode::ProtocolError),
                }
            }
        }
        Ok(())
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.out.has_remaining() {
            let mut slices = [io::IoSlice::new(&[]); SLICES_MAX];
            let count = self.out.chunks_vectored(&mut slices);
            let sent = Pin::new(&mut self.stream).poll_write_vectored(context, &slices[..count]);
            match ready!(sent)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.out.advance(sent),
            }
        }
        // Releases the list of slices, too.
        self.out = BufList::default();
        Poll::Ready(Ok(()))
    }

    /// The next frames to send; `Pending` while there are none.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<BufList> {
        if let Some(payload) = self.pinged.take() {
            return Poll::Ready(pong(payload));
        }
        if let SocketState::Ending(code) = self.state {
            self.state = SocketState::Closing;
            return Poll::Ready(close(code));
        }
        // A failed body ends the stream like a complete one. HTTP would abort the response; here only the close frame marks the end.
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let data = frame.and_then(Result::ok).map(http_body::Frame::into_data);
        Poll::Ready(match data {
            Some(Ok(pieces)) => self.events.framed(pieces),
            Some(Err(_trailers)) => BufList::default(),
            None => {
                self.end(CloseCode::Normal);
                BufList::default()
            }
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for SocketIo<S> {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.poll_hear(context)?;
        loop {
            ready!(this.poll_send(context))?;
            if this.state == SocketState::Closing {
                // Shutting down also flushes. The gateway does not wait for the client's close frame; neither does the API server.
                return Pin::new(&mut this.stream).poll_shutdown(context);
            }
            match this.poll_next(context) {
                Poll::Ready(frames) => this.out = frames,
                Poll::Pending => {
                    ready!(Pin::new(&mut this.stream).poll_flush(context))?;
                    return Poll::Pending;
                }
            }
        }
    }
}

fn no_body() -> StreamBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

#[cfg(test)]
mod tests;
