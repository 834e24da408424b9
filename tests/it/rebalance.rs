//! Gateways of which one has all clients, as after a rolling update: it sends clients away until the others have as many, and no client
//! misses an event or has to list.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube_fanout::config::{HandoverSettings, ServeSettings};
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::PATIENCE;
use crate::support::client::{CONFIGMAPS, listed, text};
use crate::support::gateway::Running;

/// Clients with a watch over HTTP/1.1, and clients with two watches on one connection of HTTP/2.
const HTTP1_CLIENTS: usize = 100;
const HTTP2_CLIENTS: usize = 50;
const WATCHES: usize = HTTP1_CLIENTS + 2 * HTTP2_CLIENTS;
/// The most that a gateway may have more than the mean of two.
const MARGIN: usize = 50;
/// Longer than clients need to arrive elsewhere.
const INTERVAL: Duration = Duration::from_secs(4);

/// Sends new connections to the gateways in turn.
struct Balancer {
    gateways: Vec<SocketAddr>,
    turn: AtomicUsize,
}

impl Balancer {
    fn next(&self) -> SocketAddr {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.gateways[turn % self.gateways.len()]
    }
}

/// An address that leads to a gateway which starts later: each needs to know where the other one is.
struct LaterAddress {
    address: SocketAddr,
    gateway: watch::Sender<Option<SocketAddr>>,
}

impl LaterAddress {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (gateway, known) = watch::channel(None);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                // Before that there is nobody.
                let Some(gateway) = *known.borrow() else {
                    continue;
                };
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(gateway).await?;
                    tokio::io::copy_bidirectional(&mut near, &mut far).await
                });
            }
        });
        Self { address, gateway }
    }
}

async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["configmaps=50".parse().unwrap()],
        object_len: 600,
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

/// A gateway that compares itself with the one at this address.
async fn gateway(apiserver: &Apiserver, peer: SocketAddr) -> Running {
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    let settings = ServeSettings {
        handover: Some(HandoverSettings {
            from: format!("http://{peer}").parse().unwrap(),
            ca_file: None,
            server_name: None,
            token_file: None,
            timeout: Duration::from_secs(5),
            len_max: 1 << 30,
            rebalance_interval: Some(INTERVAL),
        }),
        ..ServeSettings::embedded(upstream)
    };
    Running::start(settings, Drain::new()).await
}

/// The sum of a metric's samples that contain these labels.
async fn metric(gateway: &Running, name: &str, labels: &str) -> usize {
    let page = text(gateway.admin, "/metrics").await;
    let samples = page.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
    });
    let values = samples.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
    values.sum()
}

async fn watches(gateway: &Running) -> usize {
    metric(gateway, "kube_fanout_longrunning_requests", "").await
}

async fn lists(gateway: &Running) -> usize {
    metric(gateway, "kube_fanout_request_total", "verb=\"LIST\"").await
}

fn request(version: u64) -> http::Request<Full<Bytes>> {
    let target = format!(
        "http://gateway{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
    );
    let request = http::Request::get(target).header("host", "gateway");
    request.body(Full::default()).unwrap()
}

/// The value of a field in the JSON of an event: the last one of this name, which is the object's own version.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let key = format!("\"{name}\":\"");
    let rest = &line[line.find(&key).unwrap() + key.len()..];
    &rest[..rest.find('"').unwrap()]
}

/// What a client knows, over all of its watches.
#[derive(Default)]
struct Store {
    rest: Vec<u8>,
    version: u64,
    /// Versions of events.
    events: Vec<u64>,
    last_kind: String,
    /// How often a watch ended.
    ends: usize,
}

impl Store {
    fn after(version: u64) -> Self {
        Self {
            version,
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

    /// Reads until the watch ends, in order and after a bookmark, or until the client has the last version; returns whether it has.
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
                    assert_eq!(self.last_kind, "BOOKMARK");
                    self.ends += 1;
                    return false;
                }
            }
        }
    }
}

/// A client whose watch has a connection of its own.
async fn http1_client(
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
        let response = sender.send_request(request(store.version)).await.unwrap();
        assert_eq!(response.status(), 200);
        if store.read(response.into_body(), &mut last).await {
            return store;
        }
        // The gateway closes the connection.
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

async fn http2_client(
    first: SocketAddr,
    balancer: Arc<Balancer>,
    last: watch::Receiver<u64>,
    from: u64,
) -> Vec<Store> {
    let connection = Arc::new(tokio::sync::Mutex::new(Http2Connection::open(first).await));
    let mut watches = JoinSet::new();
    for _ in 0..2 {
        let (connection, balancer) = (Arc::clone(&connection), Arc::clone(&balancer));
        let mut last = last.clone();
        watches.spawn(async move {
            let mut store = Store::after(from);
            loop {
                let response = {
                    let mut connection = connection.lock().await;
                    if connection.sender.ready().await.is_err() {
                        *connection = Http2Connection::open(balancer.next()).await;
                    }
                    connection.sender.send_request(request(store.version))
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

/// Waits until the gateways have about as many watches, and all clients have one.
async fn balanced(gateways: [&Running; 2]) {
    let give_up_at = Instant::now() + 2 * PATIENCE;
    loop {
        let [one, other] = [watches(gateways[0]).await, watches(gateways[1]).await];
        if one + other == WATCHES && one.max(other) <= WATCHES / 2 + MARGIN {
            return;
        }
        assert!(Instant::now() < give_up_at, "{one} and {other} watches");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until each gateway has compared itself so many times more and found nothing to do.
async fn rested(gateways: [&Running; 2], comparisons: usize) {
    let count = async |gateway: &Running| {
        let name = "kube_fanout_rebalance_comparisons_total";
        metric(gateway, name, "outcome=\"balanced\"").await
    };
    let give_up_at = Instant::now() + 2 * PATIENCE;
    for gateway in gateways {
        let enough = count(gateway).await + comparisons;
        while count(gateway).await < enough {
            assert!(Instant::now() < give_up_at, "no rest");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Connections whose clients were sent away, at each gateway.
async fn sent_away(gateways: [&Running; 2]) -> [usize; 2] {
    let [one, other] =
        gateways.map(|gateway| metric(gateway, "kube_fanout_rebalance_connections_total", ""));
    [one.await, other.await]
}

/// Once the gateways are balanced, nobody moves any more.
async fn check_rest(gateways: [&Running; 2]) {
    rested(gateways, 2).await;
    let sent = sent_away(gateways).await;
    rested(gateways, 2).await;
    assert_eq!(sent_away(gateways).await, sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_move_to_a_gateway_that_has_none_and_miss_nothing() {
    let apiserver = apiserver().await;
    let later = LaterAddress::new().await;
    let empty = gateway(&apiserver, later.address).await;
    let full = gateway(&apiserver, empty.address).await;
    later.gateway.send(Some(full.address)).unwrap();
    let (from, _) = listed(full.address).await;
    listed(empty.address).await;
    let lists_before = [lists(&full).await, lists(&empty).await];
    let balancer = Arc::new(Balancer {
        gateways: vec![full.address, empty.address],
        turn: AtomicUsize::new(0),
    });
    let (last_version, last) = watch::channel(u64::MAX);
    let direct = http1_client(
        apiserver.address(),
        Arc::new(Balancer {
            gateways: vec![apiserver.address()],
            turn: AtomicUsize::new(0),
        }),
        last.clone(),
        Store::after(from),
    );
    let direct = tokio::spawn(direct);
    let mut clients = JoinSet::new();
    for _ in 0..HTTP1_CLIENTS {
        let (balancer, last) = (Arc::clone(&balancer), last.clone());
        let client = http1_client(full.address, balancer, last, Store::after(from));
        clients.spawn(async move { vec![client.await] });
    }
    for _ in 0..HTTP2_CLIENTS {
        let (balancer, last) = (Arc::clone(&balancer), last.clone());
        clients.spawn(http2_client(full.address, balancer, last, from));
    }
    apiserver.set_churn(50);
    let both = [&full, &empty];
    balanced(both).await;
    check_rest(both).await;
    balanced(both).await;
    apiserver.set_churn(0);
    let (newest, _) = listed(apiserver.address()).await;
    last_version.send(newest).unwrap();

    // A write may have been on its way when the writes ended.
    let events_of = |store: &Store| {
        let events = store.events.iter().copied();
        events
            .take_while(|version| *version <= newest)
            .collect::<Vec<_>>()
    };
    let direct = events_of(&direct.await.unwrap());
    assert!(!direct.is_empty());
    let (mut moved, mut count) = (0, 0);
    for store in clients.join_all().await.into_iter().flatten() {
        assert_eq!(events_of(&store), direct);
        moved += store.ends;
        count += 1;
    }
    assert_eq!(count, WATCHES);
    assert_eq!([lists(&full).await, lists(&empty).await], lists_before);
    let ends = metric(
        &full,
        "kube_fanout_stream_ends_total",
        "reason=\"rebalance\"",
    )
    .await;
    // The last clients may have left before they saw their watch end.
    assert!(ends >= moved, "{ends} {moved}");
    assert!(moved >= WATCHES / 2 - MARGIN, "{moved}");
    // The other gateway had fewer all the time.
    assert_eq!(
        metric(&empty, "kube_fanout_rebalance_connections_total", "").await,
        0
    );
}
