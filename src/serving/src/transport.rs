//! A client's connection below HTTP: TLS, coalesced writes, limits against abuse, detection of stalled clients.
//!
//! [`Transport`] is the socket, plain or TLS. It can be passed from hyper to the delivery workers and back: bytes that were read too
//! early go with it. The other parts wrap or watch it: `write_coalescer` joins the writes of an HTTP/2 connection, h2's and those of its
//! adopted streams (`adopted_stream`, `http2`), `control_frame_meter` counts HTTP/2 control frames, `abort_limit` judges the client, and `stall` ends responses that the client does not read.

pub(crate) mod abort_limit;
mod adopted_stream;
mod control_frame_meter;
mod frame_heads;
mod http2;
mod request_lines;
pub(crate) mod stall;
mod write_coalescer;

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use crate::fairness::{Permit, Reclaim};
use crate::net::TcpStream;

pub(crate) use adopted_stream::{AdoptedBody, AdoptedStream, Http2Writer, StreamFlush};
pub(crate) use control_frame_meter::ControlFrameMeter;
pub(crate) use http2::BodyStep;
use request_lines::RequestLines;
pub(crate) use write_coalescer::{CoalescedConnection, WriteCoalescer};

/// Up to this length in bytes, slices are joined into one buffer on the stack. An event in a chunk is four slices, and copying a
/// kilobyte costs less than the kernel's handling of the list of slices.
const JOINED_LEN_MAX: usize = 4096;
/// Bytes that are read ahead while a watch is delivered. Anything beyond waits in the kernel.
const READ_AHEAD_LEN_MAX: usize = 16 << 10;
/// Bytes per read while a watch is delivered; clients send little. The buffer is on the stack of each read.
const READ_LEN: usize = 512;
/// How long closing waits for a client that reads nothing.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// How long the gateway waits for the client to close an ended connection; the value of Go's servers.
pub(crate) const LINGER_TIME: Duration = Duration::from_secs(1);

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Transport {
    io: TransportIo,
    /// Bytes that were read too early; they are returned before the rest.
    read_ahead: BytesMut,
    traffic: Traffic,
    /// The connection's permit. It is held as long as the socket is open, also by a tunnel, which outlives HTTP on the connection.
    /// Boxed, because the task of a connection has room for several transports.
    _permit: Option<Box<Permit>>,
}

#[derive(Debug)]
enum TransportIo {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(test)]
    Memory(Box<dyn MemoryIo>),
}

/// A handle on what passes over a transport, for the task that has passed the transport to hyper.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic(Arc<Mutex<TrafficState>>);

#[derive(Debug, Default)]
struct TrafficState {
    /// Something was written and not flushed. hyper flushes the transport only when its own buffer is empty.
    flush_due: bool,
    /// Something was read.
    read: bool,
    /// Only for HTTP/1.1.
    request_lines: Option<RequestLines>,
    /// The next write must lift the socket's timeout, because its client may read nothing for any length of time.
    pauses_due: bool,
    /// Completes when the connection's permit was taken back.
    reclaim: Option<Reclaim>,
    /// The kernel has given the client up: it acknowledged nothing, or its receive window stayed closed.
    timed_out: bool,
    /// When the client is overdue, if it must send something now and then.
    silence: Option<SilenceLimit>,
}

/// How long a client may be silent, and since when it is.
#[derive(Clone, Copy, Debug)]
struct SilenceLimit {
    max: Duration,
    since: Instant,
}

impl Traffic {
    /// Whether a write is not flushed yet.
    pub(crate) fn is_flush_due(&self) -> bool {
        self.state().flush_due
    }

    /// Whether anything was read since the last [`forget_reads`](Self::forget_reads).
    pub(crate) fn has_read(&self) -> bool {
        self.state().read
    }

    /// Makes [`has_read`](Self::has_read) false until the next read.
    pub(crate) fn forget_reads(&self) {
        self.state().read = false;
    }

    /// What is read from now on are HTTP/1.1 requests.
    pub(crate) fn begin_requests(&self) {
        self.state().request_lines = Some(RequestLines::default());
    }

    /// Whether the target of the next HTTP/1.1 request has a fragment, which its URI does not show.
    pub(crate) fn next_has_fragment(&self) -> bool {
        let mut state = self.state();
        let lines = state.request_lines.as_mut();
        lines.is_some_and(RequestLines::next_has_fragment)
    }

    fn record_read(&self, bytes: &[u8]) {
        let mut state = self.state();
        state.read = true;
        if let Some(silence) = &mut state.silence {
            silence.since = Instant::now();
        }
        if let Some(lines) = &mut state.request_lines {
            lines.feed(bytes);
        }
    }

    /// From the next write on, the client may read nothing for any length of time: the other end of a tunnel may pause.
    pub(crate) fn allow_pauses(&self) {
        self.state().pauses_due = true;
    }

    /// Ready when the connection's permit was taken back. Every use of the transport fails from then on.
    pub(crate) fn poll_reclaim(&self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.state().reclaim {
            Some(reclaim) => Pin::new(reclaim).poll(context),
            None => Poll::Pending,
        }
    }

    /// An error once the connection's permit was taken back.
    fn check_permit(&self, context: &mut Context<'_>) -> io::Result<()> {
        match self.poll_reclaim(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }

    /// From now on the client must send something within any such time: over HTTP/2 it answers PINGs.
    pub(crate) fn limit_silence(&self, max: Duration) {
        let since = Instant::now();
        self.state().silence = Some(SilenceLimit { max, since });
    }

    /// Whether the client has stopped reading: the kernel has given it up, or it was silent for too long. A client that only disconnects has
    /// not.
    pub(crate) fn has_stalled(&self) -> bool {
        let state = self.state();
        let is_silent = |silence: SilenceLimit| silence.since.elapsed() >= silence.max;
        state.timed_out || state.silence.is_some_and(is_silent)
    }

    /// Passes on the result of reading or writing.
    fn noted<V>(&self, polled: Poll<io::Result<V>>) -> Poll<io::Result<V>> {
        if let Poll::Ready(Err(error)) = &polled
            && error.kind() == io::ErrorKind::TimedOut
        {
            self.state().timed_out = true;
        }
        polled
    }

    fn set_flush_due(&self, due: bool) {
        self.state().flush_due = due;
    }

    /// Records a write; returns whether the socket's timeout must be lifted.
    fn begin_write(&self) -> bool {
        let mut state = self.state();
        state.flush_due = true;
        std::mem::take(&mut state.pauses_due)
    }

    fn state(&self) -> MutexGuard<'_, TrafficState> {
        self.0.lock()
    }
}

impl From<TransportIo> for Transport {
    fn from(io: TransportIo) -> Self {
        Self {
            io,
            read_ahead: BytesMut::new(),
            traffic: Traffic::default(),
            _permit: None,
        }
    }
}

impl From<TcpStream> for Transport {
    fn from(stream: TcpStream) -> Self {
        TransportIo::Plain(stream).into()
    }
}

impl From<TlsStream<TcpStream>> for Transport {
    fn from(stream: TlsStream<TcpStream>) -> Self {
        TransportIo::Tls(Box::new(stream)).into()
    }
}

/// A connection whose other end a test holds.
#[cfg(test)]
pub(crate) trait MemoryIo: AsyncRead + AsyncWrite + Unpin + Send + std::fmt::Debug {}

#[cfg(test)]
impl MemoryIo for tokio::io::DuplexStream {}

#[cfg(test)]
impl<S: MemoryIo + 'static> From<S> for Transport {
    fn from(stream: S) -> Self {
        TransportIo::Memory(Box::new(stream)).into()
    }
}

impl Transport {
    /// Stores a permit that is released when the socket closes, and ends the connection when it is taken back.
    pub(crate) fn with_permit(self, permit: Option<Permit>, reclaim: Option<Reclaim>) -> Self {
        self.traffic.state().reclaim = reclaim;
        Self {
            _permit: permit.map(Box::new),
            ..self
        }
    }

    /// The TCP socket.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        match &self.io {
            TransportIo::Plain(stream) => Some(stream),
            TransportIo::Tls(stream) => Some(stream.get_ref().0),
            #[cfg(test)]
            TransportIo::Memory(_) => None,
        }
    }

    fn begin_write(&self) {
        if self.traffic.begin_write()
            && let Some(socket) = self.socket()
            && let Err(error) = lift_user_timeout(socket)
        {
            debug!(%error, "cannot set socket options");
        }
    }

    /// Puts back bytes that were read too early; they are returned before anything else.
    pub(crate) fn put_back(&mut self, read: &[u8]) {
        let later = self.read_ahead.split();
        self.read_ahead.extend_from_slice(read);
        self.read_ahead.extend_from_slice(&later);
    }

    /// A handle that reports what passes over the transport after it has been passed on.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    /// Writes some of `bytes`; returns how many.
    ///
    /// # Errors
    /// If the connection fails; it accepts no more writes.
    pub(crate) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.traffic.check_permit(context)?;
        let written = self.io.poll_write(context, bytes);
        nonzero(ready!(self.traffic.noted(written)))
    }

    /// Writes some of `slices`; returns how many bytes.
    ///
    /// # Errors
    /// If the connection fails; it accepts no more writes.
    pub(crate) fn poll_send_vectored(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.traffic.check_permit(context)?;
        let written = self.io.poll_write_vectored(context, slices);
        nonzero(ready!(self.traffic.noted(written)))
    }

    /// Flushes the bytes that TLS has buffered.
    ///
    /// # Errors
    /// If the connection fails; it accepts no more writes.
    pub(crate) fn poll_flushed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = match &mut self.io {
            TransportIo::Plain(_) => Poll::Ready(Ok(())),
            TransportIo::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
            #[cfg(test)]
            TransportIo::Memory(stream) => Pin::new(&mut **stream).poll_flush(context),
        };
        self.traffic.noted(flushed)
    }

    /// Closes the connection. Under TLS this sends close_notify, so that the client does not take the end for a broken connection.
    pub(crate) async fn close(mut self) {
        // A client that has disconnected or reads nothing does not get the close_notify.
        let _ = tokio::time::timeout(CLOSE_TIME, self.shutdown()).await;
        linger(self).await;
    }

    /// Reads all that the client has sent and keeps it for the next reader; registers the task to be woken for more.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub(crate) fn poll_hear(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.traffic.check_permit(context)?;
        while self.read_ahead.len() < READ_AHEAD_LEN_MAX {
            let mut space = [0; READ_LEN];
            let mut buffer = ReadBuf::new(&mut space);
            let polled = self.io.poll_read(context, &mut buffer);
            match self.traffic.noted(polled) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Poll::Ready(Ok(())) => self.read_ahead.extend_from_slice(buffer.filled()),
            }
        }
        Ok(())
    }
}

#[cfg(not(feature = "sim"))]
fn lift_user_timeout(socket: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(socket).set_tcp_user_timeout(None)
}

#[cfg(feature = "sim")]
fn lift_user_timeout(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

/// Waits until the client has closed a connection on which everything is sent. If the gateway closed it first, anything that the client
/// still sends, such as window updates, would cause a reset, and a client that gets a reset discards what it has not read yet.
pub(crate) async fn linger(mut stream: impl AsyncRead + Unpin) {
    let drained = async {
        let mut space = [0; READ_LEN];
        while stream.read(&mut space).await.is_ok_and(|len| len > 0) {}
    };
    let _ = tokio::time::timeout(LINGER_TIME, drained).await;
}

fn nonzero(written: io::Result<usize>) -> Poll<io::Result<usize>> {
    Poll::Ready(match written {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        written => written,
    })
}

impl TransportIo {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
            #[cfg(test)]
            Self::Memory(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
            #[cfg(test)]
            Self::Memory(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if slices.len() > 1 && len <= JOINED_LEN_MAX {
            let mut joined = [0; JOINED_LEN_MAX];
            let mut at = 0;
            for slice in slices {
                joined[at..at + slice.len()].copy_from_slice(slice);
                at += slice.len();
            }
            return self.poll_write(context, &joined[..len]);
        }
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(context, slices),
            #[cfg(test)]
            Self::Memory(stream) => Pin::new(&mut **stream).poll_write_vectored(context, slices),
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.traffic.check_permit(context)?;
        let before = buffer.filled().len();
        if self.read_ahead.is_empty() {
            let polled = self.io.poll_read(context, buffer);
            if buffer.filled().len() > before {
                self.traffic.record_read(&buffer.filled()[before..]);
            }
            return self.traffic.noted(polled);
        }
        let len = self.read_ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.read_ahead[..len]);
        self.read_ahead.advance(len);
        if self.read_ahead.is_empty() {
            self.read_ahead = BytesMut::new();
            // One read returns all available bytes, as callers expect. The next read reports an error or the end.
            if buffer.remaining() > 0 {
                let polled = self.io.poll_read(context, buffer);
                let _ = self.traffic.noted(polled);
            }
        }
        self.traffic.record_read(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.traffic.check_permit(context)?;
        self.begin_write();
        let written = self.io.poll_write(context, bytes);
        self.traffic.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.traffic.check_permit(context)?;
        self.begin_write();
        let written = self.io.poll_write_vectored(context, slices);
        self.traffic.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flushed(context))?;
        self.traffic.set_flush_due(false);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            TransportIo::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            TransportIo::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            #[cfg(test)]
            TransportIo::Memory(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}
