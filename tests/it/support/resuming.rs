//! Clients that watch config maps, and resume where a watch has ended; over HTTP/1.1, and over HTTP/2 with two watches on one connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::PATIENCE;
use super::client::CONFIGMAPS;

/// Sends new connections to the gateways in turn.
pub(crate) struct Balancer {
    gateways: Vec<SocketAddr>,
    turn: AtomicUsize,
}

impl Balancer {
    pub(crate) fn of(gateways: &[SocketAddr]) -> Arc<Self> {
        Arc::new(Self {
            gateways: gateways.to_vec(),
            turn: AtomicUsize::new(0),
        })
    }

    fn next(&self) -> SocketAddr {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.gateways[turn % self.gateways.len()]
    }
}

fn request(version: u64, agent: &str) -> http::Request<Full<Bytes>> {
    let target = format!(
        "http://gateway{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
    );
    let request = http::Request::get(target)
        .header("host", "gateway")
        .header("user-agent", agent);
    request.body(Full::default()).unwrap()
}

/// The value of a field in the JSON of an event: the last one of this name, which is the object's own version.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let key = format!("\"{name}\":\"");
    let rest = &line[line.find(&key).unwrap() + key.len()..];
    &rest[..rest.find('"').unwrap()]
}

/// What a client knows, over all of its watches.
#[derive(Clone, Default)]
pub(crate) struct Store {
    rest: Vec<u8>,
    version: u64,
    /// Versions of events.
    events: Vec<u64>,
    last_kind: String,
    /// How often a watch ended.
    pub(crate) ends: usize,
    /// How often it did so without a bookmark before its end.
    pub(crate) unmarked_ends: usize,
    /// The client's `User-Agent`.
    agent: String,
}

impl Store {
    /// The store of a client that knows everything up to this version.
    pub(crate) fn after(version: u64, agent: &str) -> Self {
        Self {
            version,
            agent: agent.to_owned(),
            ..Self::default()
        }
    }

    fn receive(&mut self, data: &[u8]) {
        self.rest.extend(data);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8(line).unwrap();
            let kind = field(&line, "type");
            assert_ne!(kind, "ERROR", "{line}");
            let version = field(&line, "resourceVersion").parse().unwrap();
            if kind == "BOOKMARK" {
                assert!(version >= self.version, "{version} after {}", self.version);
            } else {
                assert!(version > self.version, "{version} after {}", self.version);
                self.events.push(version);
            }
            self.version = version;
            kind.clone_into(&mut self.last_kind);
        }
    }

    /// Versions of the events up to this one: a write may have been on its way when the writes ended.
    pub(crate) fn events_until(&self, newest: u64) -> Vec<u64> {
        let events = self.events.iter().copied();
        events.take_while(|version| *version <= newest).collect()
    }

    /// Reads until the watch ends, in order, or until the client has the last version; returns whether it has.
    async fn read(&mut self, mut body: Incoming, last: &mut watch::Receiver<u64>) -> bool {
        loop {
            let last_version = *last.borrow_and_update();
            if self.version >= last_version {
                return true;
            }
            let frame = tokio::select! {
                frame = timeout(PATIENCE, body.frame()) => frame.unwrap(),
                _ = last.changed() => continue,
            };
            match frame {
                Some(frame) => self.receive(&frame.unwrap().into_data().unwrap()),
                None => {
                    assert!(self.rest.is_empty());
                    self.unmarked_ends += usize::from(self.last_kind != "BOOKMARK");
                    self.ends += 1;
                    return false;
                }
            }
        }
    }
}

/// A client whose watch has a connection of its own.
pub(crate) async fn http1_client(
    first: SocketAddr,
    balancer: Arc<Balancer>,
    mut last: watch::Receiver<u64>,
    mut store: Store,
) -> Store {
    let mut server = first;
    loop {
        let io = TokioIo::new(TcpStream::connect(server).await.unwrap());
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let response = sender
            .send_request(request(store.version, &store.agent))
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        if store.read(response.into_body(), &mut last).await {
            return store;
        }
        if balancer.gateways.len() == 1 {
            // Nowhere else to go: the client leaves by itself.
            drop(sender);
        }
        // Otherwise the gateway closes the connection.
        timeout(PATIENCE, connection)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        server = balancer.next();
    }
}

/// A client that has one connection for all of its watches as long as the gateway leaves it open, as client-go has.
struct Http2Connection {
    sender: http2::SendRequest<Full<Bytes>>,
}

impl Http2Connection {
    async fn open(server: SocketAddr) -> Self {
        let io = TokioIo::new(TcpStream::connect(server).await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }
}

pub(crate) async fn http2_client(
    first: SocketAddr,
    balancer: Arc<Balancer>,
    last: watch::Receiver<u64>,
    from: Store,
) -> Vec<Store> {
    let connection = Arc::new(tokio::sync::Mutex::new(Http2Connection::open(first).await));
    let mut watches = JoinSet::new();
    for _ in 0..2 {
        let (connection, balancer) = (Arc::clone(&connection), Arc::clone(&balancer));
        let (mut last, mut store) = (last.clone(), from.clone());
        watches.spawn(async move {
            loop {
                let response = {
                    let mut connection = connection.lock().await;
                    if connection.sender.ready().await.is_err() {
                        *connection = Http2Connection::open(balancer.next()).await;
                    }
                    connection
                        .sender
                        .send_request(request(store.version, &store.agent))
                };
                let response = match response.await {
                    Ok(response) => response,
                    // GOAWAY was faster: the request was not sent.
                    Err(error) if error.is_canceled() => continue,
                    Err(error) => panic!("{error}"),
                };
                assert_eq!(response.status(), 200);
                if store.read(response.into_body(), &mut last).await {
                    return store;
                }
            }
        });
    }
    watches.join_all().await
}
