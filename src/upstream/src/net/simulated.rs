//! Sockets of the simulated network. They have tokio's interface, as far as it is used, and faults that a test orders.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tower_service::Service;

thread_local! {
    static STREAMS: RefCell<Vec<Weak<StreamFaults>>> = const { RefCell::new(Vec::new()) };
    static SEGMENT_LEN: Cell<usize> = const { Cell::new(1_448) };
}

/// How long after the last bytes a reader learns that its peer has closed the connection. The simulated network drops the notice if the
/// reader's queue is full when it arrives.
const CLOSE_NOTICE: Duration = Duration::from_secs(5);

/// Bytes that one read takes at most.
const READ_LEN: usize = 8 << 10;

/// A listening socket.
pub struct TcpListener(turmoil::net::TcpListener);

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TcpListener")
    }
}

impl TcpListener {
    /// Opens a listening socket of the current host.
    ///
    /// # Errors
    /// If the address is in use or is not one of the host.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        turmoil::net::TcpListener::bind(address).await.map(Self)
    }

    /// Like [`bind`](Self::bind), which never waits in a simulation.
    pub fn bind_now(address: SocketAddr) -> io::Result<Self> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(Self::bind(address)).poll(&mut context) {
            Poll::Ready(bound) => bound,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// The next connection.
    ///
    /// # Errors
    /// Never in a simulation.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.0.accept().await?;
        Ok((TcpStream::new(stream)?, peer))
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// Never in a simulation.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A connection.
#[derive(Debug)]
pub struct TcpStream {
    io: turmoil::net::TcpStream,
    faults: Arc<StreamFaults>,
    /// Runs while the peer's end is closed and nothing arrives.
    close_notice: Option<Pin<Box<Sleep>>>,
}

/// The faults that are ordered for one end of a connection.
#[derive(Debug)]
struct StreamFaults {
    local: SocketAddr,
    peer: SocketAddr,
    state: Mutex<FaultState>,
}

#[derive(Debug, Default)]
struct FaultState {
    is_reset: bool,
    /// The connection is reset after so many more received bytes.
    reset_after: Option<usize>,
    /// The peer's end is closed.
    is_peer_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// An end of an open connection: its own address and its peer's.
pub type OpenStream = (SocketAddr, SocketAddr);

/// The ends of the open connections, in the order in which they were opened.
pub fn open_streams() -> Vec<OpenStream> {
    STREAMS.with_borrow_mut(|streams| {
        streams.retain(|stream| stream.strong_count() > 0);
        let open = streams.iter().filter_map(Weak::upgrade);
        open.filter(|stream| !stream.state.lock().is_reset)
            .map(|stream| (stream.local, stream.peer))
            .collect()
    })
}

/// Resets both ends of a connection.
pub fn reset(stream: OpenStream) {
    let ends = [stream, (stream.1, stream.0)];
    for end in matching(|end| ends.contains(&end)) {
        end.reset();
    }
}

/// Resets a connection when this end of it has received `len` more bytes.
pub fn reset_after(stream: OpenStream, len: usize) {
    for end in matching(|end| end == stream) {
        end.state.lock().reset_after = Some(len);
    }
}

/// Sets how many bytes a segment carries at most, and with it where writes are divided.
pub fn set_segment_len(len: usize) {
    SEGMENT_LEN.set(len);
}

/// The address of a host.
pub async fn lookup_host(
    (host, port): (&str, u16),
) -> io::Result<impl Iterator<Item = SocketAddr> + use<>> {
    Ok(std::iter::once((turmoil::lookup(host), port).into()))
}

fn matching(is_wanted: impl Fn(OpenStream) -> bool) -> Vec<Arc<StreamFaults>> {
    STREAMS.with_borrow(|streams| {
        let open = streams.iter().filter_map(Weak::upgrade);
        open.filter(|end| is_wanted((end.local, end.peer)))
            .collect()
    })
}

impl StreamFaults {
    fn reset(&self) {
        let mut state = self.state.lock();
        state.is_reset = true;
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl TcpStream {
    /// Connects to an address or to `(host, port)`.
    ///
    /// # Errors
    /// If nothing listens there, or the network drops the request.
    pub async fn connect(target: impl turmoil::ToSocketAddrs) -> io::Result<Self> {
        Self::new(turmoil::net::TcpStream::connect(target).await?)
    }

    fn new(io: turmoil::net::TcpStream) -> io::Result<Self> {
        let faults = Arc::new(StreamFaults {
            local: io.local_addr()?,
            peer: io.peer_addr()?,
            state: Mutex::default(),
        });
        STREAMS.with_borrow_mut(|streams| streams.push(Arc::downgrade(&faults)));
        Ok(Self {
            io,
            faults,
            close_notice: None,
        })
    }

    /// Whether the peer has closed its end.
    fn is_peer_closed(&self) -> bool {
        self.faults.state.lock().is_peer_closed
    }

    fn check(&self, note: impl FnOnce(&mut FaultState)) -> io::Result<()> {
        let mut state = self.faults.state.lock();
        if state.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        note(&mut state);
        Ok(())
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        for end in matching(|end| end == (self.faults.peer, self.faults.local)) {
            let mut state = end.state.lock();
            state.is_peer_closed = true;
            let reader = state.reader.take();
            drop(state);
            reader.into_iter().for_each(Waker::wake);
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(|state| state.reader = Some(context.waker().clone()))?;
        let rest = self.faults.state.lock().reset_after;
        let len = rest.unwrap_or(usize::MAX).min(buffer.remaining());
        let mut space = [0; READ_LEN];
        let mut part = ReadBuf::new(&mut space[..len.min(READ_LEN)]);
        let polled = Pin::new(&mut self.io).poll_read(context, &mut part);
        let read = part.filled().len();
        buffer.put_slice(part.filled());
        if polled.is_ready() {
            self.close_notice = None;
        } else if self.is_peer_closed() {
            let notice = self
                .close_notice
                .get_or_insert_with(|| Box::pin(sleep(CLOSE_NOTICE)));
            if notice.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
        if let Some(rest) = rest {
            let rest = rest - read;
            self.faults.state.lock().reset_after = Some(rest);
            if rest == 0 {
                reset((self.faults.local, self.faults.peer));
            }
        }
        polled
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(|state| state.writer = Some(context.waker().clone()))?;
        let len = bytes.len().min(SEGMENT_LEN.get());
        Pin::new(&mut self.io).poll_write(context, &bytes[..len])
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(|_| {})?;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl Connection for TcpStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Connects to the host and port of a URI.
#[derive(Clone, Debug)]
pub struct HttpConnector;

impl Service<Uri> for HttpConnector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let host = target.host().unwrap_or_default().to_owned();
        let port = target.port_u16().unwrap_or(80);
        Box::pin(async move { TcpStream::connect((host, port)).await.map(TokioIo::new) })
    }
}
