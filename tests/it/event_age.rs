//! How old events are when they arrive and when clients get them, over every transport and in both encodings.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Full};
use jiff::{SignedDuration, Timestamp};
use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::PATIENCE;
use crate::support::client::{self, HttpVersion, connect_and_get, text, version_of};
use crate::support::gateway::Running;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// An API server with Leases, and a gateway before it.
struct Stage {
    _apiserver: Apiserver,
    gateway: Running,
}

impl Stage {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = Options {
            extra_kinds: vec!["leases.v1.coordination.k8s.io=Lease".parse().unwrap()],
            ..Options::default()
        };
        let apiserver = apiserver::start(listener, options).unwrap();
        let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
        let gateway = Running::start(ServeSettings::embedded(upstream), Drain::new()).await;
        Self {
            _apiserver: apiserver,
            gateway,
        }
    }

    /// The version of all Leases, which are in the cache from then on.
    async fn version(&self) -> u64 {
        let list = text(self.gateway.address, LEASES).await;
        version_of(&serde_json::from_str(&list).unwrap())
    }

    /// Creates a Lease that was renewed so long ago.
    async fn create(&self, name: &str, ago: SignedDuration) {
        let renewed = (Timestamp::now() - ago).to_string();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"holderIdentity": "test", "renewTime": renewed},
        });
        let request = http::Request::post(LEASES)
            .header("host", "gateway")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(lease.to_string())))
            .unwrap();
        let response = client::send(self.gateway.address, request).await;
        assert_eq!(response.status(), StatusCode::CREATED);
    }

    /// The value of a series of the Leases.
    async fn value(&self, name: &str) -> f64 {
        let page = text(self.gateway.admin, "/metrics").await;
        let start = format!("kube_fanout_{name}{{");
        let lines = page.lines().filter(|line| line.starts_with(&start));
        let mut lines = lines.filter(|line| line.contains("resource=\"leases\""));
        let value = lines.next().and_then(|line| line.rsplit(' ').next());
        value.unwrap_or("0").parse().unwrap()
    }

    /// Waits until a series has this value: deliveries are counted after they are written.
    async fn reaches(&self, name: &str, value: f64) {
        let reached = async {
            while self.value(name).await < value {
                tokio::task::yield_now().await;
            }
        };
        let in_time = timeout(PATIENCE, reached).await;
        let last = self.value(name).await;
        assert!(in_time.is_ok() && last <= value, "{name} is {last}");
    }
}

/// Opens a watch over WebSocket.
async fn websocket(server: SocketAddr, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let head = format!(
        "GET {target} HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut found = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&found).contains(end) {
            assert_ne!(stream.read_buf(&mut found).await.unwrap(), 0, "{found:?}");
        }
    };
    timeout(PATIENCE, read).await.unwrap();
    String::from_utf8_lossy(&found).into_owned()
}

#[tokio::test]
async fn each_client_counts_the_age_of_an_event_whatever_it_speaks() {
    const AGE: f64 = 40.0;
    let stage = Stage::new().await;
    let version = stage.version().await;
    let target = format!("{LEASES}?watch=1&resourceVersion={version}");
    let server = stage.gateway.address;
    let mut bodies = Vec::new();
    for http in [HttpVersion::One, HttpVersion::One, HttpVersion::Two] {
        let watch = connect_and_get(http, server, &target).await.unwrap();
        assert_eq!(watch.status(), StatusCode::OK);
        bodies.push(watch.into_body());
    }
    let mut socket = websocket(server, &target).await;
    stage.create("old", SignedDuration::from_secs(40)).await;
    for body in &mut bodies {
        let frame = timeout(PATIENCE, body.frame()).await.unwrap();
        let line = frame.unwrap().unwrap().into_data().unwrap();
        let event: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(event["object"]["metadata"]["name"], "old");
    }
    read_until(&mut socket, "\"old\"").await;

    stage.reaches("watch_events_lag_seconds_count", 4.0).await;
    stage.reaches("watch_events_age_seconds_count", 4.0).await;
    stage.reaches("upstream_event_age_seconds_count", 1.0).await;
    let arrived = stage.value("upstream_event_age_seconds_sum").await;
    let delivered = stage.value("watch_events_age_seconds_sum").await;
    assert!(arrived >= AGE, "{arrived}");
    // Each client's age begins with the event's at its arrival, which is kept to the microsecond.
    assert!(delivered >= 4.0 * (arrived - 1e-6), "{delivered} {arrived}");
    let lag = stage.value("watch_events_lag_seconds_sum").await;
    let difference = (delivered - 4.0 * arrived - lag).abs();
    assert!(difference < 1e-3, "{delivered} {arrived} {lag}");
    assert_eq!(stage.value("upstream_future_writes_total").await, 0.0);
}

#[tokio::test]
async fn a_time_that_has_not_come_counts_as_no_age() {
    let stage = Stage::new().await;
    let version = stage.version().await;
    let target = format!("{LEASES}?watch=1&resourceVersion={version}");
    let watch = connect_and_get(HttpVersion::One, stage.gateway.address, &target).await;
    let mut body = watch.unwrap().into_body();
    stage.create("early", SignedDuration::from_hours(-1)).await;
    timeout(PATIENCE, body.frame()).await.unwrap();
    stage.reaches("watch_events_age_seconds_count", 1.0).await;
    assert_eq!(stage.value("upstream_future_writes_total").await, 1.0);
    assert_eq!(stage.value("upstream_event_age_seconds_sum").await, 0.0);
    let delivered = stage.value("watch_events_age_seconds_sum").await;
    assert!(delivered < PATIENCE.as_secs_f64(), "{delivered}");
}

#[tokio::test]
async fn the_date_of_the_api_servers_answer_shows_its_clock() {
    let stage = Stage::new().await;
    let _ = stage.version().await;
    // Both run on this machine, so the clocks differ by no more than the date's second and the time of the answer.
    let page = text(stage.gateway.admin, "/metrics").await;
    assert!(page.contains("upstream_clock_offset_seconds{"), "{page}");
    let offset = stage.value("upstream_clock_offset_seconds").await;
    assert!(
        offset.abs() < Duration::from_secs(10).as_secs_f64(),
        "{offset}"
    );
}
