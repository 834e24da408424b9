//! Tests of the responses to probes, scrapers and people, over a real socket.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::places::{PAGES_MAX, PLACES_MAX};
use super::*;
use crate::config::ServingRules;
use crate::metrics::{Metrics, ReadinessLabel};
use crate::resource::{CacheKey, Gvr};
use crate::serving_control::ServingControl;
use crate::shutdown::Drain;

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[derive(Default)]
struct Checks(Mutex<Vec<ReadinessCheck>>);

impl Readiness for Checks {
    fn checks(&self) -> Vec<ReadinessCheck> {
        self.0.lock().unwrap().clone()
    }
}

struct NoStatus;

impl crate::status::StatusSource for NoStatus {
    fn collect(&self) -> crate::status::StatusDocument {
        crate::status::StatusDocument::default()
    }
}

struct Port {
    address: SocketAddr,
    checks: Arc<Checks>,
    drain: Drain,
    /// Stops the server when dropped.
    _tasks: JoinSet<Infallible>,
}

impl Port {
    async fn open() -> Self {
        // Accepted connections have the listener's small send buffer.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(4096).unwrap();
        socket.bind(ANY_PORT).unwrap();
        let listener = socket.listen(128).unwrap();
        let address = listener.local_addr().unwrap();
        let (checks, drain) = (Arc::<Checks>::default(), Drain::new());
        let metrics = Metrics::new().unwrap();
        // Enough series that a page does not fit into the buffers of a connection.
        for at in 0..100 {
            let gvr = Gvr::new("", "v1", &format!("resource{at}"));
            drop(metrics.cache((&CacheKey::json(&gvr)).into()));
        }
        let serving =
            ServingControl::new(ServingRules::default(), Metrics::new().unwrap().serving());
        let state = AdminState {
            metrics: Arc::new(metrics),
            readiness: Arc::<Checks>::clone(&checks),
            drain: drain.clone(),
            status: StatusFeed::new(Arc::new(NoStatus)),
            guard: None,
            audit: None,
            log: None,
            serving,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { serve(&listener, state).await });
        Self {
            address,
            checks,
            drain,
            _tasks: tasks,
        }
    }

    fn set(&self, name: &str, outcome: CheckOutcome) {
        let mut checks = self.checks.0.lock().unwrap();
        checks.retain(|check| check.name != name);
        let name = name.to_owned();
        checks.push(ReadinessCheck {
            name,
            kind: Some(ReadinessLabel::Pinned),
            outcome,
        });
    }

    /// Status code, head in lower case, and body of the response.
    async fn request(&self, method: &str, target: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{method} {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    #[track_caller]
    fn check(
        &self,
        target: &'static str,
        status: u16,
        body: &'static str,
    ) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let response = self.request("GET", target).await;
            assert_eq!(
                (response.0, &*response.2),
                (status, body),
                "{target} at {caller}"
            );
        }
    }
}

#[tokio::test]
async fn it_is_ready_once_every_check_passes() {
    let port = Port::open().await;
    port.set("pods.v1", CheckOutcome::Passed(String::new()));
    port.set("configmaps.v1", CheckOutcome::Failed("listing".to_owned()));
    let waiting =
        "[+]drain ok\n[+]pods.v1 ok\n[-]configmaps.v1 not ready: listing\nreadyz check failed\n";
    port.check("/readyz", 503, waiting).await;

    port.set(
        "configmaps.v1",
        CheckOutcome::Passed("forwarded: forbidden".to_owned()),
    );
    port.check("/readyz", 200, "ok").await;
    let ready = "[+]drain ok\n[+]pods.v1 ok\n[+]configmaps.v1 ok: forwarded: forbidden\nreadyz check passed\n";
    port.check("/readyz?verbose", 200, ready).await;
    port.check("/readyz?a=b&verbose=true", 200, ready).await;
}

#[tokio::test]
async fn a_drain_ends_readiness_but_not_liveness_or_metrics() {
    let port = Port::open().await;
    port.drain.begin();
    port.check(
        "/readyz",
        503,
        "[-]drain not ready: drain has begun\nreadyz check failed\n",
    )
    .await;
    port.check("/livez", 200, "ok").await;
    port.check("/livez?verbose", 200, "[+]ping ok\nlivez check passed\n")
        .await;
    assert_eq!(port.request("GET", "/metrics").await.0, 200);
}

#[tokio::test]
async fn a_scrape_shows_which_checks_fail_at_that_moment() {
    let port = Port::open().await;
    let shown = async || {
        let (_, _, page) = port.request("GET", "/metrics").await;
        let lines = page
            .lines()
            .filter(|line| line.starts_with("kube_fanout_ready{"));
        lines.map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let expected = |pinned: u8, drain: u8| {
        ["drain", "handover", "pinned", "upstream"]
            .map(|check| {
                let value = match check {
                    "drain" => drain,
                    "pinned" => pinned,
                    _ => 1,
                };
                format!("kube_fanout_ready{{check=\"{check}\"}} {value}")
            })
            .join(" ")
    };
    assert_eq!(shown().await, expected(1, 1));
    port.set("pods.v1", CheckOutcome::Failed("listing".to_owned()));
    assert_eq!(shown().await, expected(0, 1));
    port.set("pods.v1", CheckOutcome::Passed(String::new()));
    port.drain.begin();
    assert_eq!(shown().await, expected(1, 0));
}

#[tokio::test]
async fn a_scrape_gets_the_text_format() {
    let port = Port::open().await;
    let (status, head, body) = port.request("GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    let line = "\nkube_fanout_build_info{commit=\"unknown\",version=";
    assert!(body.contains(line), "{body}");
    assert!(body.contains("\nprocess_resident_memory_bytes "), "{body}");
}

#[tokio::test]
async fn the_version_is_json() {
    let port = Port::open().await;
    let (status, head, body) = port.request("GET", "/version").await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: application/json"), "{head}");
    let facts: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(facts["commit"], "unknown");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_cleanly() {
    let port = Port::open().await;
    port.check("/", 404, "404 page not found\n").await;
    port.check("/metrics/", 404, "404 page not found\n").await;
    let (status, head, _) = port.request("POST", "/metrics").await;
    assert_eq!(status, 405);
    assert!(head.contains("allow: get, head"), "{head}");
    let (status, _, body) = port.request("HEAD", "/livez").await;
    assert_eq!((status, &*body), (200, ""));
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let first = listen(ANY_PORT).await.unwrap();
    let address = first.local_addr().unwrap();
    let error = listen(address).await.unwrap_err();
    assert_eq!(error.to_string(), format!("--admin-listen {address}"));
}

/// Connects from a loopback address of its own, with a receive buffer of a few kilobytes.
async fn connect_from(last: u8, port: &Port) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket
        .bind(SocketAddr::from(([127, 0, 0, last], 0)))
        .unwrap();
    socket.connect(port.address).await.unwrap()
}

/// The status of the response, without the rest.
async fn begun(stream: &mut TcpStream) -> u16 {
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    std::str::from_utf8(&first[9..]).unwrap().parse().unwrap()
}

/// Many addresses hold connections in every way that needs no further packet.
#[tokio::test]
async fn addresses_that_sit_keep_neither_probes_nor_scrapes_out() {
    let slow_head = "GET /livez HTTP/1.1\r\nhost: a\r\n";
    let idle = "GET /livez HTTP/1.1\r\nhost: a\r\nconnection: keep-alive\r\n\r\n";
    let slow_body = "POST /metrics HTTP/1.1\r\nhost: a\r\ncontent-length: 9999\r\n\r\n{";
    for sent in ["", slow_head, idle, slow_body] {
        let port = Port::open().await;
        let mut held = Vec::new();
        for at in 0..6 * PLACES_MAX {
            let mut stream = connect_from(u8::try_from(2 + at % 200).unwrap(), &port).await;
            // The connection may be closed already.
            let _ = stream.write_all(sent.as_bytes()).await;
            held.push(stream);
        }
        port.check("/livez", 200, "ok").await;
        port.check("/readyz", 200, "ok").await;
        assert_eq!(port.request("GET", "/metrics").await.0, 200, "{sent}");
        drop(held);
    }
}

#[tokio::test]
async fn addresses_that_read_slowly_do_not_keep_the_probes_out() {
    let port = Port::open().await;
    let mut held = Vec::new();
    for last in 2..=250 {
        let mut stream = connect_from(last, &port).await;
        let request = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n";
        stream.write_all(request).await.unwrap();
        match begun(&mut stream).await {
            200 => held.push(stream),
            code => {
                assert_eq!(code, 503);
                break;
            }
        }
    }
    assert_eq!(held.len(), PAGES_MAX);
    port.check("/livez", 200, "ok").await;
    port.check("/readyz", 200, "ok").await;
    let refusal = "too many clients are reading metrics\n";
    port.check("/metrics", 503, refusal).await;
    // A page under way is not cut.
    let mut page = String::new();
    held[0].read_to_string(&mut page).await.unwrap();
    assert!(page.contains("\nprocess_resident_memory_bytes "), "{page}");
    assert_eq!(port.request("GET", "/metrics").await.0, 200);
}
