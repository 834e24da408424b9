//! A client's connection below HTTP, plain or encrypted. Can be taken from one who speaks HTTP on it and given to another:
//! what has been read too far goes with it.

pub(crate) mod abort_limit;
mod control_frame_meter;
pub(crate) mod stall;
mod write_coalescer;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use crate::fairness::Permit;

pub(crate) use control_frame_meter::ControlFrameMeter;
pub(crate) use write_coalescer::{CoalescedConnection, WriteCoalescer};

/// Up to this length slices are joined: one event in a chunk is four slices, and copying a kilobyte costs less than the
/// kernel's handling of the list. Lives on the stack of each write.
const JOINED_LEN_MAX: usize = 4096;
/// What a client may send ahead while it watches. What is beyond waits in the kernel.
const EARLY_LEN_MAX: usize = 16 << 10;
/// Clients say next to nothing while they watch. It lives on the stack of each read.
const HEARD_LEN: usize = 512;
/// A client that takes nothing is not waited for any longer when its connection is closed.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// A client that does not close a connection which was ended is not waited for any longer; as Go's servers have it.
pub(crate) const LINGER_TIME: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Transport {
    wire: TransportIo,
    /// Read already; given out before the rest.
    early: BytesMut,
    traffic: Traffic,
    /// Its client's place among connections. It lives as long as the socket, whoever has that: a tunnel has left HTTP behind.
    _place: Option<Permit>,
}

#[derive(Debug)]
enum TransportIo {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(test)]
    Memory(Box<dyn MemoryIo>),
}

/// What passes over a transport, as seen by whoever lent it out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic(Arc<Mutex<TrafficState>>);

#[derive(Debug, Default)]
struct TrafficState {
    /// Something was written and not flushed. hyper flushes below it when its own buffer is empty, and only then.
    flush_due: bool,
    /// Something was read.
    read: bool,
    /// The socket is still to learn that its client may take nothing for as long as it likes.
    patience_due: bool,
}

impl Traffic {
    /// True while something is on its way.
    pub(crate) fn is_flush_due(&self) -> bool {
        self.passed().flush_due
    }

    /// Whether anything was read since the last [`forget_reads`](Self::forget_reads).
    pub(crate) fn has_read(&self) -> bool {
        self.passed().read
    }

    /// Forgets what was read so far.
    pub(crate) fn forget_reads(&self) {
        self.passed().read = false;
    }

    /// From the next write on the client may take nothing for as long as it likes: the other end of a tunnel may pause.
    pub(crate) fn allow_pauses(&self) {
        self.passed().patience_due = true;
    }

    fn set_flush_due(&self, due: bool) {
        self.passed().flush_due = due;
    }

    /// Notes that something is written; whether the socket is to be told of its client's right to pause.
    fn begin_write(&self) -> bool {
        let mut passed = self.passed();
        passed.flush_due = true;
        std::mem::take(&mut passed.patience_due)
    }

    fn passed(&self) -> MutexGuard<'_, TrafficState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<TransportIo> for Transport {
    fn from(wire: TransportIo) -> Self {
        Self {
            wire,
            early: BytesMut::new(),
            traffic: Traffic::default(),
            _place: None,
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

/// A connection that a test holds the other end of.
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
    /// The same, with a place that is given back when the socket is closed.
    pub(crate) fn holding(self, place: Option<Permit>) -> Self {
        Self {
            _place: place,
            ..self
        }
    }

    /// What it runs on.
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        match &self.wire {
            TransportIo::Plain(stream) => Some(stream),
            TransportIo::Tls(stream) => Some(stream.get_ref().0),
            #[cfg(test)]
            TransportIo::Memory(_) => None,
        }
    }

    fn begin_write(&self) {
        if self.traffic.begin_write()
            && let Some(socket) = self.socket()
            && let Err(error) = socket2::SockRef::from(socket).set_tcp_user_timeout(None)
        {
            debug!(%error, "socket options");
        }
    }

    /// Puts back what was read too far, before anything that is still to be read.
    pub(crate) fn put_back(&mut self, read: &[u8]) {
        debug_assert!(self.early.is_empty(), "given out before it is read on");
        self.early.extend_from_slice(read);
    }

    /// Tells later, when the transport is elsewhere, what passes over it.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    /// Writes some of `bytes`.
    ///
    /// # Errors
    /// The connection's; it takes nothing any more.
    pub(crate) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        some(ready!(self.wire.poll_write(context, bytes)))
    }

    /// Writes some of `slices`.
    ///
    /// # Errors
    /// The connection's; it takes nothing any more.
    pub(crate) fn poll_send_vectored(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        some(ready!(self.wire.poll_write_vectored(context, slices)))
    }

    /// Passes on what encryption holds.
    ///
    /// # Errors
    /// The connection's; it takes nothing any more.
    pub(crate) fn poll_flushed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            TransportIo::Plain(_) => Poll::Ready(Ok(())),
            TransportIo::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
            #[cfg(test)]
            TransportIo::Memory(stream) => Pin::new(&mut **stream).poll_flush(context),
        }
    }

    /// Closes the connection. Under TLS its client is told that this is the end, so that it does not take it for a broken connection.
    pub(crate) async fn close(mut self) {
        // Who has left, or takes nothing, misses that.
        let _ = tokio::time::timeout(CLOSE_TIME, self.shutdown()).await;
        linger(self).await;
    }

    /// Hears all that has come, keeps it for whoever reads next, and asks to be woken for more.
    ///
    /// # Errors
    /// The client has left.
    pub(crate) fn poll_hear(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.early.len() < EARLY_LEN_MAX {
            let mut space = [0; HEARD_LEN];
            let mut buffer = ReadBuf::new(&mut space);
            match self.wire.poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Poll::Ready(Ok(())) => self.early.extend_from_slice(buffer.filled()),
            }
        }
        Ok(())
    }
}

/// Waits until the client has closed a connection on which all is said. If it were closed before, whatever the client still sends, window
/// updates above all, would be answered by a reset, and clients that meet it give up what they have not read yet.
pub(crate) async fn linger(mut stream: impl AsyncRead + Unpin) {
    let hearing = async {
        let mut space = [0; HEARD_LEN];
        while stream.read(&mut space).await.is_ok_and(|len| len > 0) {}
    };
    let _ = tokio::time::timeout(LINGER_TIME, hearing).await;
}

fn some(written: io::Result<usize>) -> Poll<io::Result<usize>> {
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
        if self.early.is_empty() {
            let before = buffer.filled().len();
            let polled = self.wire.poll_read(context, buffer);
            if buffer.filled().len() > before {
                self.traffic.passed().read = true;
            }
            return polled;
        }
        self.traffic.passed().read = true;
        let len = self.early.len().min(buffer.remaining());
        buffer.put_slice(&self.early[..len]);
        self.early.advance(len);
        if self.early.is_empty() {
            self.early = BytesMut::new();
            // As much as there is in one go, as whoever reads expects. What goes wrong now, the next read says, or that it is the end.
            let _ = self.wire.poll_read(context, buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.begin_write();
        self.wire.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.begin_write();
        self.wire.poll_write_vectored(context, slices)
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
        match &mut self.wire {
            TransportIo::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            TransportIo::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            #[cfg(test)]
            TransportIo::Memory(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}
