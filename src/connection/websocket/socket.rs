//! One open WebSocket: sends what the watch gives, hears what the client says. It is pulled as HTTP bodies are.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::Body;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{StreamBody, no_body};
use crate::protocol::BufList;
use crate::protocol::websocket::{
    ClientFrames, CloseCode, ControlRequest, EventFrames, Framing, close, pong,
};

/// Clients say next to nothing. It lives on the stack of each read.
const READ_LEN: usize = 512;
/// What one vectored write is given at most.
const SLICES_MAX: usize = 64;

/// A WebSocket that was agreed to, and what it shall send.
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

    /// Serves it until either side ends it. Dropping it cuts the connection.
    pub async fn run(self: Box<Self>) {
        let Self {
            connection,
            body,
            framing,
        } = *self;
        match connection.await {
            Ok(stream) => {
                if let Err(error) = SocketIo::new(TokioIo::new(stream), body, framing).await {
                    tracing::debug!(%error, "WebSocket ended");
                }
            }
            Err(error) => tracing::debug!(%error, "WebSocket not opened"),
        }
    }
}

/// ```text
/// Open ── the body ends, the client closes, breaks the protocol or leaves ──▶ Closing ── all is written ──▶ done
/// ```
pub(crate) struct SocketIo<S> {
    stream: S,
    body: StreamBody,
    events: EventFrames,
    client: ClientFrames,
    /// Frames on their way. Nothing is taken from the body before they have left.
    out: BufList,
    /// To be sent back. Of several pings that come meanwhile the newest is answered (RFC 6455 §5.5.3).
    pinged: Option<Bytes>,
    state: SocketState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketState {
    Open,
    /// The close frame is to follow what is on its way.
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

    /// Ends the watch now, and the connection when what is on its way has left.
    fn end(&mut self, code: CloseCode) {
        self.state = SocketState::Ending(code);
        self.body = no_body();
    }

    /// Hears all that has come. Also finds out that the client has left.
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
        // Lets go of the list of slices with the slices.
        self.out = BufList::default();
        Poll::Ready(Ok(()))
    }

    /// What to send next; `Pending` while there is nothing.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<BufList> {
        if let Some(payload) = self.pinged.take() {
            return Poll::Ready(pong(payload));
        }
        if let SocketState::Ending(code) = self.state {
            self.state = SocketState::Closing;
            return Poll::Ready(close(code));
        }
        // A body that breaks off is one that ends: over HTTP it would be cut, but here the close frame is the end.
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
                // Also flushes. The client's own close frame is not waited for, as the server does not.
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
