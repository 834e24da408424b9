//! Gateways that end while clients watch: the clients leave one after the other, miss nothing, and continue elsewhere.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::PATIENCE;
use crate::support::client::{HttpVersion, connect_and_get};
use crate::support::gateway::Running;

const CONFIGMAPS: &str = "/api/v1/configmaps";
const EVENTS: &str = "/api/v1/events";
const WATCHERS: usize = 40;

async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["configmaps=50".parse().unwrap()],
        object_len: 500,
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

async fn gateway(apiserver: &Apiserver, drain: Drain) -> Running {
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    Running::start(ServeSettings::embedded(upstream), drain).await
}

/// What a watch has received: the type and the version of each event.
type Received = Vec<(String, u64)>;

struct Watch {
    body: Incoming,
    rest: Vec<u8>,
    received: Received,
}

impl Watch {
    async fn start(server: SocketAddr, http: HttpVersion, version: u64) -> Self {
        let target =
            format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
        let response = connect_and_get(http, server, &target).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Self {
            body: response.into_body(),
            rest: Vec::new(),
            received: Vec::new(),
        }
    }

    /// Reads what comes next; false at the end of the stream, which must be in order.
    async fn read(&mut self) -> bool {
        let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
        let Some(frame) = frame.unwrap() else {
            assert!(self.rest.is_empty());
            return false;
        };
        self.rest
            .extend(frame.unwrap().into_data().unwrap_or_default());
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let kind = event["type"].as_str().unwrap().to_owned();
            assert_ne!(kind, "ERROR", "{event}");
            let version = event["object"]["metadata"]["resourceVersion"].as_str();
            self.received
                .push((kind, version.unwrap().parse().unwrap()));
        }
        true
    }

    fn version(&self) -> u64 {
        self.received.last().map_or(0, |(_, version)| *version)
    }

    async fn read_to(&mut self, version: u64) {
        while self.version() < version {
            assert!(self.read().await, "the watch has ended");
        }
    }

    async fn read_to_end(mut self) -> Received {
        while self.read().await {}
        self.received
    }

    fn events(&self) -> Received {
        let events = self.received.iter().filter(|(kind, _)| kind != "BOOKMARK");
        events.cloned().collect()
    }
}

async fn newest(server: SocketAddr) -> u64 {
    let response = connect_and_get(HttpVersion::One, server, CONFIGMAPS)
        .await
        .unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let list: Value = serde_json::from_slice(&body).unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    version.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_end_one_after_the_other_and_continue_at_another_gateway() {
    let apiserver = apiserver().await;
    let drain = Drain::with_timeout(Duration::from_secs(5));
    let first = gateway(&apiserver, drain.clone()).await;
    let second = gateway(&apiserver, Drain::new()).await;
    let from = newest(first.address).await;
    newest(second.address).await;
    let mut direct = Watch::start(apiserver.address(), HttpVersion::One, from).await;
    let mut watches = Vec::new();
    for number in 0..WATCHERS {
        let http = [HttpVersion::One, HttpVersion::Two][number % 2];
        watches.push((http, Watch::start(first.address, http, from).await));
    }
    apiserver.set_churn(200);
    for (_, watch) in &mut watches {
        watch.read_to(from + 1).await;
    }
    let before = newest(apiserver.address()).await;
    let mut readers = JoinSet::new();
    for (http, watch) in watches {
        readers.spawn(async move { (http, watch.read_to_end().await) });
    }
    first.ended().await;
    let mut ended = readers.join_all().await;
    ended.sort_by_key(|(_, received)| received.last().unwrap().1);

    // The time between two ends is told by the version of the last bookmark.
    let mut ends: Vec<u64> = Vec::new();
    for (_, received) in &ended {
        let (kind, version) = received.last().unwrap();
        assert_eq!(kind, "BOOKMARK");
        assert!(received.iter().all(|(_, earlier)| earlier <= version));
        ends.push(*version);
    }
    ends.dedup();
    assert!(ends.len() > WATCHERS / 2, "{ends:?}");
    assert!(ends.last().unwrap() > &(before + 100), "{before} {ends:?}");

    let mut resumed = Vec::new();
    for (http, received) in ended {
        let from = received.last().unwrap().1;
        let watch = Watch::start(second.address, http, from).await;
        resumed.push(Watch { received, ..watch });
    }
    apiserver.set_churn(0);
    let last = newest(apiserver.address()).await;
    direct.read_to(last).await;
    for mut watch in resumed {
        watch.read_to(last).await;
        assert_eq!(watch.events(), direct.events());
    }
}

#[tokio::test]
async fn a_forwarded_watch_ends_in_order_too() {
    let apiserver = apiserver().await;
    let gateway = gateway(&apiserver, Drain::with_timeout(PATIENCE)).await;
    let target = format!("{EVENTS}?watch=1");
    let watch = connect_and_get(HttpVersion::One, gateway.address, &target).await;
    let body = watch.unwrap().into_body();
    gateway.ended().await;
    assert!(body.collect().await.is_ok());
}

#[tokio::test]
async fn clients_are_served_while_load_balancers_notice() {
    let apiserver = apiserver().await;
    let drain = Drain::with_timeout(PATIENCE * 2).with_delay(PATIENCE);
    let gateway = gateway(&apiserver, drain).await;
    newest(gateway.address).await;
    let readiness = async || {
        let answer = connect_and_get(HttpVersion::One, gateway.admin, "/readyz").await;
        answer.unwrap().status()
    };
    assert_eq!(readiness().await, StatusCode::OK);
    gateway.begin_drain();
    assert_eq!(readiness().await, StatusCode::SERVICE_UNAVAILABLE);
    newest(gateway.address).await;
}

#[tokio::test]
async fn connections_are_sent_away_at_random_and_their_streams_continue() {
    let apiserver = apiserver().await;
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    let settings = ServeSettings {
        requests_per_goaway: 1,
        ..ServeSettings::embedded(upstream)
    };
    let gateway = Running::start(settings, Drain::new()).await;
    let from = newest(gateway.address).await;
    let mut watch = Watch::start(gateway.address, HttpVersion::Two, from).await;
    apiserver.set_churn(100);
    watch.read_to(from + 50).await;

    // Without a stream the connection ends by itself.
    let io = TokioIo::new(TcpStream::connect(gateway.address).await.unwrap());
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
    let (mut sender, connection) = handshake.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get(format!("http://gateway{CONFIGMAPS}?limit=1"));
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer.into_body().collect().await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, connection).await;
    ended.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_say_nothing_do_not_hold_the_drain_until_its_deadline() {
    let apiserver = apiserver().await;
    let drain = Drain::with_timeout(Duration::from_secs(3600));
    let gateway = gateway(&apiserver, drain.clone()).await;
    let mut silent = Vec::new();
    for sent in ["", "PRI", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nHost:"] {
        let mut socket = TcpStream::connect(gateway.address).await.unwrap();
        socket.write_all(sent.as_bytes()).await.unwrap();
        silent.push(socket);
    }
    // The gateway has accepted them, because it accepts in order.
    assert!(newest(gateway.address).await > 0);
    drain.begin();
    tokio::time::timeout(PATIENCE, gateway.ended())
        .await
        .unwrap();
}
