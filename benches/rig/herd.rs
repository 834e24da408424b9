//! Many HTTP/1.1 watchers in one thread, which do nothing but count the events that arrive.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// What a watcher asks for.
pub(crate) const PATH: &str = "/api/v1/configmaps?allowWatchBookmarks=true&resourceVersion=1000000&timeoutSeconds=3000&watch=true";
/// With the path about what client-go sends, tokens left out: 350 bytes.
const HEAD: &str = "HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
    User-Agent: bench/v0.0.0 (linux/amd64) kubernetes/$Format\r\n\
    Accept: application/json, */*\r\nAudit-Id: 3c3d3ef5-6b9c-4b6a-8a4e-0a8e0b1c2d3e\r\n\
    X-Padding: ........................................................\r\n\r\n";
/// Longer than anything that waits for one client.
const BUFFER_LEN: usize = 256 << 10;
/// A step that takes longer has failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Shared {
    /// Events that each watcher shall have got when the step is over.
    expected: Cell<u64>,
    /// Watchers that have not got that many yet.
    waiting: Cell<usize>,
    changed: Notify,
    /// One for all: a read is looked at before the next one.
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

/// Watchers of one server. Lives in a `LocalSet`.
pub(crate) struct Herd {
    shared: Rc<Shared>,
    size: usize,
    watchers: JoinSet<io::Result<()>>,
}

impl Herd {
    /// Connects `size` watchers, in turn to each of the addresses, and waits until they have their response heads
    /// and so many events.
    pub(crate) async fn connect(
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
        let request = format!("GET {PATH} {HEAD}");
        for address in addresses.iter().cycle().take(size) {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(request.as_bytes()).await?;
            let shared = Rc::clone(&herd.shared);
            herd.watchers.spawn_local(watch(stream, shared));
        }
        herd.arrived().await?;
        Ok(herd)
    }

    /// Announces that `events` more will come to each.
    pub(crate) fn expect(&self, events: u64) {
        self.shared
            .expected
            .set(self.shared.expected.get() + events);
        self.shared.waiting.set(self.size);
    }

    /// Completes when all have what was announced.
    pub(crate) async fn arrived(&mut self) -> io::Result<()> {
        let wait = async {
            // Both are safe to cancel: a permit that is not taken stays, a watcher that is not joined too.
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

async fn watch(stream: TcpStream, shared: Rc<Shared>) -> io::Result<()> {
    let (mut head, mut last, mut events, mut told) = (Some(Vec::new()), 0, 0, None);
    loop {
        stream.readable().await?;
        let mut buffer = shared.buffer.borrow_mut();
        let len = match stream.try_read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let mut body = &buffer[..len];
        let rest;
        if let Some(begun) = &mut head {
            begun.extend_from_slice(body);
            let Some(end) = memchr::memmem::find(begun, b"\r\n\r\n") else {
                continue;
            };
            if !begun.starts_with(b"HTTP/1.1 200") {
                return Err(io::Error::other(String::from_utf8_lossy(begun)));
            }
            rest = begun.split_off(end + 4);
            body = &rest;
            head = None;
        }
        events += event_ends(body, &mut last);
        let expected = shared.expected.get();
        if events > expected {
            return Err(io::Error::other("more events than were published"));
        }
        if events == expected && told != Some(expected) {
            told = Some(expected);
            shared.one_done();
        }
    }
}

/// Newlines that end an event: those of chunk framing follow a carriage return.
fn event_ends(body: &[u8], last: &mut u8) -> u64 {
    let ends = memchr::memchr_iter(b'\n', body)
        .filter(|&at| at.checked_sub(1).map_or(*last, |before| body[before]) != b'\r')
        .count();
    *last = body.last().copied().unwrap_or(*last);
    ends as u64
}
