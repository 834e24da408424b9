//! The page, its document and its events, over a real socket.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::*;
use crate::admin::{AdminState, Readiness, ReadinessCheck, listen, serve};
use crate::config::ServingRules;
use crate::metrics::Metrics;
use crate::serving_control::ServingControl;
use crate::shutdown::Drain;
use crate::status::{ClientStatus, LagState, StatusDocument};

/// Counts how often it is asked.
struct Source {
    collected: AtomicUsize,
    user_agent: String,
}

impl StatusSource for Source {
    fn collect(&self) -> StatusDocument {
        self.collected.fetch_add(1, Ordering::Relaxed);
        StatusDocument {
            version: crate::status::STATUS_VERSION,
            slowest: vec![ClientStatus {
                resource: "pods.v1".to_owned(),
                user: "jane".to_owned(),
                user_agent: self.user_agent.clone(),
                address: "10.0.0.1".to_owned(),
                lag_events: 7,
                lag_seconds: 6.0,
                state: LagState::Slow,
                position: 0.5,
                open_seconds: 1.0,
            }],
            ..StatusDocument::default()
        }
    }
}

struct Ready;

impl Readiness for Ready {
    fn checks(&self) -> Vec<ReadinessCheck> {
        Vec::new()
    }
}

struct Port {
    address: SocketAddr,
    source: Arc<Source>,
    _tasks: JoinSet<Infallible>,
}

impl Port {
    async fn open(user_agent: &str) -> Self {
        let listener = listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let source = Arc::new(Source {
            collected: AtomicUsize::new(0),
            user_agent: user_agent.to_owned(),
        });
        let serving =
            ServingControl::new(ServingRules::default(), Metrics::new().unwrap().serving());
        let state = AdminState {
            metrics: Arc::new(Metrics::new().unwrap()),
            readiness: Arc::new(Ready),
            drain: Drain::new(),
            status: StatusFeed::new(Arc::<Source>::clone(&source)),
            guard: None,
            audit: None,
            log: None,
            serving,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { serve(&listener, state).await });
        Self {
            address,
            source,
            _tasks: tasks,
        }
    }

    fn collected(&self) -> usize {
        self.source.collected.load(Ordering::Relaxed)
    }

    async fn connect(&self, from: [u8; 4], request: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The whole response to a request from this address with this host.
    async fn get(&self, from: [u8; 4], host: &str, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let mut response = String::new();
        let mut stream = self.connect(from, &request).await;
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    async fn events(&self) -> TcpStream {
        let request = "GET /status/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
        self.connect([127, 0, 0, 1], request).await
    }
}

/// Reads until the text has arrived so many times.
async fn read_times(stream: &mut TcpStream, text: &str, times: usize) -> String {
    let (mut all, mut part) = (String::new(), [0; 4096]);
    while all.matches(text).count() < times {
        let len = stream.read(&mut part).await.unwrap();
        assert!(len > 0, "the connection ended: {all}");
        all.push_str(std::str::from_utf8(&part[..len]).unwrap());
    }
    all
}

const HERE: [u8; 4] = [127, 0, 0, 1];

#[tokio::test]
async fn the_document_is_versioned_json() {
    let port = Port::open("kubectl").await;
    let response = port.get(HERE, "localhost", "/status.json").await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/json"), "{head}");
    let document: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(document["version"], 1);
    assert_eq!(document["slowest"][0]["userAgent"], "kubectl");
    assert_eq!(document["totals"]["saved"]["bytes"], 0);
    assert_eq!(
        document["totals"]["eventsPerSecond"],
        serde_json::Value::Null
    );
}

#[tokio::test]
async fn the_page_allows_only_its_own_script() {
    let port = Port::open("").await;
    let response = port.get(HERE, "localhost:1", "/status").await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("content-security-policy: default-src 'none'"),
        "{head}"
    );
    assert!(!head.contains("unsafe"), "{head}");
    assert_eq!(body, PAGE);
    let empty = STANDARD.encode(digest(&SHA256, b""));
    assert!(!head.contains(&empty), "the hash of nothing: {head}");
    // The page's own text has no way to turn names into markup, and loads nothing.
    for forbidden in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        " onclick=",
        " style=",
        "src=",
    ] {
        assert!(!PAGE.contains(forbidden), "{forbidden}");
    }
    let style_and_script = ["<style>", "<script>"].map(|tag| PAGE.matches(tag).count());
    assert_eq!(style_and_script, [1, 1]);
}

#[tokio::test]
async fn markup_in_a_user_agent_stays_text() {
    let agent = "</script><img src=x onerror=alert(1)>\n\ndata: {}";
    let port = Port::open(agent).await;
    let mut stream = port.events().await;
    let events = read_times(&mut stream, "\n\n", 1).await;
    let head = events.split_once("\r\n\r\n").unwrap().0;
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    let data = events.lines().find_map(|line| line.strip_prefix("data: "));
    let document: serde_json::Value = serde_json::from_str(data.unwrap()).unwrap();
    assert_eq!(document["slowest"][0]["userAgent"], agent);
}

#[tokio::test]
async fn others_need_a_right_that_nobody_has_without_authentication() {
    let port = Port::open("").await;
    for path in ["/status", "/status.json", "/status/events"] {
        for (from, host) in [([127, 0, 0, 2], "localhost"), (HERE, "evil.example")] {
            let response = port.get(from, host, path).await;
            assert!(response.starts_with("HTTP/1.1 403 "), "{path}: {response}");
            assert!(!response.contains("jane"), "{response}");
        }
    }
    assert_eq!(port.collected(), 0);
}

#[tokio::test]
async fn nothing_is_collected_unless_somebody_looks_and_all_share_it() {
    let port = Port::open("").await;
    for path in ["/status", "/metrics", "/readyz"] {
        port.get(HERE, "localhost", path).await;
    }
    assert_eq!(port.collected(), 0);
    let mut viewers = Vec::new();
    for _ in 0..4 {
        let mut viewer = port.events().await;
        read_times(&mut viewer, "data: ", 1).await;
        viewers.push(viewer);
    }
    let before = port.collected();
    for viewer in &mut viewers {
        read_times(viewer, "data: ", 1).await;
    }
    // Each has had two documents; they were collected for all of them.
    assert!(before < 4, "{before}");
    drop(viewers);
}

#[tokio::test]
async fn viewers_are_bounded_and_make_room_when_they_leave() {
    let port = Port::open("").await;
    let feed = StatusFeed::new(Arc::<Source>::clone(&port.source));
    let mut viewers: Vec<_> = (0..VIEWERS_MAX)
        .map(|_| feed.events(Arc::default()).unwrap())
        .collect();
    assert!(feed.events(Arc::default()).is_none());
    viewers.pop();
    assert!(feed.events(Arc::default()).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_viewer_that_takes_nothing_is_disconnected_and_no_other() {
    let viewer = Arc::<StatusViewer>::default();
    let stalled = viewer.stalled();
    tokio::pin!(stalled);
    // A connection without events never stalls.
    let idle = tokio::time::timeout(STALL_MAX * 3, &mut stalled);
    assert!(idle.await.is_err());
    let taken_at = Instant::now();
    viewer.take(taken_at);
    stalled.await;
    assert!(taken_at.elapsed() >= STALL_MAX);
}
