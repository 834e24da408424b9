//! Many watchers in one thread, which only count the events that arrive.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::tls;

/// The path that a watcher requests.
pub(crate) const PATH: &str = "/api/v1/configmaps?allowWatchBookmarks=true&resourceVersion=1000000&timeoutSeconds=3000&watch=true";
/// Together with the path about what client-go sends, without a token: 350 bytes.
const HEAD: &str = "HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
    User-Agent: bench/v0.0.0 (linux/amd64) kubernetes/$Format\r\n\
    Accept: application/json, */*\r\nAudit-Id: 3c3d3ef5-6b9c-4b6a-8a4e-0a8e0b1c2d3e\r\n\
    X-Padding: ........................................................\r\n\r\n";
/// Streams per HTTP/2 connection.
pub(crate) const STREAMS: usize = 100;
/// Larger than the data that ever waits for one client.
const BUFFER_LEN: usize = 256 << 10;
/// A step that takes longer has failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// How watchers connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// HTTP/1.1, one connection per watcher.
    Plain,
    /// The same over TLS.
    Tls,
    /// HTTP/2 without TLS, [`STREAMS`] per connection.
    Http2,
    /// The same, with one connection per watcher.
    Http2Alone,
}

#[derive(Debug)]
struct Shared {
    /// Total number of events that each watcher has received when the step ends.
    expected: Cell<u64>,
    /// Watchers that have not received that many yet.
    waiting: Cell<usize>,
    changed: Notify,
    /// Shared by all watchers: each read is processed before the next one.
    buffer: RefCell<Vec<u8>>,
}

impl Shared {
    fn one_done(&self) {
        self.waiting.set(self.waiting.get().saturating_sub(1));
        if self.waiting.get() == 0 {
            self.changed.notify_one();
        }
    }
}

/// The watchers of one server. Runs in a `LocalSet`.
pub(crate) struct Herd {
    shared: Rc<Shared>,
    size: usize,
    watchers: JoinSet<io::Result<()>>,
}

impl Herd {
    /// Connects `size` watchers, to the addresses in turn, and waits until all have received their response head and `events` events.
    pub(crate) async fn connect(
        form: Form,
        size: usize,
        addresses: &[SocketAddr],
        events: u64,
    ) -> io::Result<Self> {
        let shared = Rc::new(Shared {
            expected: Cell::new(events),
            waiting: Cell::new(size),
            changed: Notify::new(),
            buffer: RefCell::new(vec![0; BUFFER_LEN]),
        });
        let mut herd = Self {
            shared,
            size,
            watchers: JoinSet::new(),
        };
        match form {
            Form::Plain => {
                for address in addresses.iter().cycle().take(size) {
                    let stream = TcpStream::connect(address).await?;
                    herd.start_watch(stream).await?;
                }
            }
            Form::Tls => {
                let connector = TlsConnector::from(tls::client()?);
                let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
                for address in addresses.iter().cycle().take(size) {
                    let stream = TcpStream::connect(address).await?;
                    herd.start_watch(connector.connect(name.clone(), stream).await?)
                        .await?;
                }
            }
            Form::Http2 | Form::Http2Alone => {
                let most = if form == Form::Http2 { STREAMS } else { 1 };
                let streams = most.min(size);
                let connections = size.div_ceil(streams);
                for address in addresses.iter().cycle().take(connections) {
                    herd.start_streams(*address, streams)
                        .await
                        .map_err(io::Error::other)?;
                }
            }
        }
        herd.wait_for_events().await?;
        Ok(herd)
    }

    async fn start_watch<S>(&mut self, mut stream: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        stream
            .write_all(format!("GET {PATH} {HEAD}").as_bytes())
            .await?;
        stream.flush().await?;
        let shared = Rc::clone(&self.shared);
        self.watchers.spawn_local(watch(stream, shared));
        Ok(())
    }

    async fn start_streams(&mut self, address: SocketAddr, count: usize) -> Result<(), BoxError> {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // It ends with the last body.
        tokio::task::spawn_local(connection);
        for _ in 0..count {
            let request = Request::get(format!("http://{address}{PATH}"))
                .header("accept", "application/json, */*")
                .header(
                    "user-agent",
                    "bench/v0.0.0 (linux/amd64) kubernetes/$Format",
                )
                .body(Empty::<Bytes>::new())?;
            sender.ready().await?;
            let body = sender.send_request(request).await?.into_body();
            let shared = Rc::clone(&self.shared);
            self.watchers.spawn_local(watch_stream(body, shared));
        }
        Ok(())
    }

    /// Sets the expectation that every watcher receives `events` more.
    pub(crate) fn expect(&self, events: u64) {
        self.shared
            .expected
            .set(self.shared.expected.get() + events);
        self.shared.waiting.set(self.size);
    }

    /// Completes when every watcher has received the expected events.
    pub(crate) async fn wait_for_events(&mut self) -> io::Result<()> {
        let wait = async {
            // Both are cancel-safe: neither a notification nor a finished watcher is lost.
            tokio::select! {
                () = self.shared.changed.notified() => Ok(()),
                Some(ended) = self.watchers.join_next() => Err(match ended {
                    Ok(Err(error)) => error,
                    _ => io::ErrorKind::UnexpectedEof.into(),
                }),
            }
        };
        tokio::time::timeout(STEP_TIMEOUT, wait).await?
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The state of one watcher.
#[derive(Default)]
struct Watcher {
    head: Vec<u8>,
    is_body: bool,
    last: u8,
    events: u64,
    completed: Option<u64>,
}

impl Watcher {
    fn take(&mut self, bytes: &[u8], shared: &Shared) -> io::Result<()> {
        if self.is_body {
            return self.take_body(bytes, shared);
        }
        self.head.extend_from_slice(bytes);
        let Some(end) = memchr::memmem::find(&self.head, b"\r\n\r\n") else {
            return Ok(());
        };
        if !self.head.starts_with(b"HTTP/1.1 200") {
            return Err(io::Error::other(String::from_utf8_lossy(&self.head)));
        }
        let rest = self.head.split_off(end + 4);
        (self.head, self.is_body) = (Vec::new(), true);
        self.take_body(&rest, shared)
    }

    fn take_body(&mut self, body: &[u8], shared: &Shared) -> io::Result<()> {
        self.events += event_ends(body, &mut self.last);
        let expected = shared.expected.get();
        if self.events > expected {
            return Err(io::Error::other("more events than were published"));
        }
        if self.events == expected && self.completed != Some(expected) {
            self.completed = Some(expected);
            shared.one_done();
        }
        Ok(())
    }
}

async fn watch(mut stream: impl AsyncRead + Unpin, shared: Rc<Shared>) -> io::Result<()> {
    let mut watcher = Watcher::default();
    poll_fn(|context| {
        loop {
            // Shared by all watchers of this thread: it is never borrowed across polls.
            let mut buffer = shared.buffer.borrow_mut();
            let mut read = ReadBuf::new(&mut buffer);
            ready!(Pin::new(&mut stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            watcher.take(read.filled(), &shared)?;
        }
    })
    .await
}

async fn watch_stream(mut body: Incoming, shared: Rc<Shared>) -> io::Result<()> {
    let mut watcher = Watcher {
        is_body: true,
        ..Watcher::default()
    };
    // The head has arrived, and perhaps no event is expected.
    watcher.take_body(b"", &shared)?;
    loop {
        let frame = body.frame().await.ok_or(io::ErrorKind::UnexpectedEof)?;
        let frame = frame.map_err(io::Error::other)?;
        watcher.take_body(frame.data_ref().map_or(&[], |data| data), &shared)?;
    }
}

/// Counts the newlines that end an event; those of chunk framing follow a carriage return.
fn event_ends(body: &[u8], last: &mut u8) -> u64 {
    let ends = memchr::memchr_iter(b'\n', body)
        .filter(|&at| at.checked_sub(1).map_or(*last, |before| body[before]) != b'\r')
        .count();
    *last = body.last().copied().unwrap_or(*last);
    ends as u64
}
