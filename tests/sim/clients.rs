//! Clients that list and watch as the API documents it, and our informers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::contract::{Contract, difference, identity};
use super::history::Objects;
use super::plan::END_MS;
use kube_fanout::informer::{ListWatch, Raw, SharedInformer};
use kube_fanout::net::TcpStream;
use kube_fanout::resource::Gvr;
use kube_fanout::upstream::client::{Client, ConnectSource};

/// Where gateways listen.
pub(crate) const PORT: u16 = 8_443;
const COLLECTION: &str = "/api/v1/configmaps";
/// How long a client waits for a response.
const ANSWER_WAIT: Duration = Duration::from_secs(15);
/// The pause before a client tries again.
const PAUSE: Duration = Duration::from_millis(300);

/// How a client behaves.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    pub(crate) gateways: Vec<String>,
    pub(crate) http: HttpVersion,
    /// Milliseconds until it arrives.
    pub(crate) starts_ms: u64,
    pub(crate) list: ListKind,
    /// Milliseconds between two events that it reads; 0 for a client that keeps up.
    pub(crate) delay_ms: u64,
    /// How long it watches.
    pub(crate) seconds: Range<u64>,
    /// Milliseconds at most that it is away after a watch, while the history goes on without it.
    pub(crate) away_ms: u64,
    /// It lists after each watch, as programs without an informer do.
    pub(crate) lists_again: bool,
    /// It does not watch, but only lists, as scripts do.
    pub(crate) only_lists: bool,
    pub(crate) random: fastrand::Rng,
}

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2 {
        /// Bytes of a stream that are sent before the client has read the first of them. With few, events wait for a client that reads slowly.
        window: u32,
    },
}

/// How a client gets its first state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Newest,
    /// In pages of one version.
    Paged,
    Any,
    Streamed,
}

/// Why a client's stream ended.
enum StreamEnd {
    /// It continues from its version.
    Resume,
    /// It lists again.
    Expired,
}

/// Keeps a copy of the collection, for ever.
pub(crate) async fn run(mut contract: Contract, mut habits: Habits) {
    sleep(Duration::from_millis(habits.starts_ms)).await;
    loop {
        let is_streamed = habits.list == ListKind::Streamed;
        if !is_streamed && list(&mut contract, &mut habits).await.is_none() {
            sleep(PAUSE).await;
            continue;
        }
        if habits.only_lists {
            rest(&contract, &mut habits).await;
            continue;
        }
        let mut is_first = is_streamed;
        loop {
            match watch(&mut contract, &mut habits, is_first).await {
                Some(StreamEnd::Expired) => {
                    contract.report.count(|counts| counts.expired += 1);
                    contract.report.note(&contract.name, "expired");
                    break;
                }
                Some(StreamEnd::Resume) if habits.lists_again => break,
                Some(StreamEnd::Resume) => is_first = is_streamed && contract.version == 0,
                None if is_first => contract.version = 0,
                None => {}
            }
            rest(&contract, &mut habits).await;
        }
    }
}

/// The time between two requests.
async fn rest(contract: &Contract, habits: &mut Habits) {
    sleep(PAUSE).await;
    if habits.away_ms > 0 && contract.report.elapsed() < Duration::from_millis(END_MS) {
        let ms = habits.random.u64(..habits.away_ms);
        sleep(Duration::from_millis(ms)).await;
    }
}

async fn list(contract: &mut Contract, habits: &mut Habits) -> Option<()> {
    let floor = match habits.list {
        ListKind::Newest | ListKind::Paged => Some(contract.history.newest()),
        ListKind::Any | ListKind::Streamed => None,
    };
    let options = match habits.list {
        ListKind::Paged => "limit=5",
        ListKind::Any => "resourceVersion=0",
        ListKind::Newest | ListKind::Streamed => "limit=0",
    };
    let (mut objects, mut token) = (Objects::new(), String::new());
    loop {
        let selector = selector(contract);
        let target = format!("{COLLECTION}?{options}{selector}{token}");
        let list = page(habits, &target).await?;
        objects.extend(list["items"].as_array()?.iter().map(identity));
        match list["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => token = format!("&continue={next}"),
            Some(_) | None => {
                contract.on_list(identity(&list).1, objects, floor);
                return Some(());
            }
        }
    }
}

/// A list, or the next page of it; `None` if the client has to begin again.
async fn page(habits: &mut Habits, target: &str) -> Option<Value> {
    let (status, body) = request(habits, target).await?;
    if status != 200 {
        return None;
    }
    let body = timeout(ANSWER_WAIT, body.collect()).await.ok()?.ok()?;
    serde_json::from_slice(&body.to_bytes()).ok()
}

fn selector(contract: &Contract) -> String {
    let filter = contract.filter;
    filter.map_or_else(String::new, |side| format!("&labelSelector=side%3D{side}"))
}

async fn watch(
    contract: &mut Contract,
    habits: &mut Habits,
    is_initial: bool,
) -> Option<StreamEnd> {
    let seconds = habits.random.u64(habits.seconds.clone());
    let mut target = format!(
        "{COLLECTION}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}{}",
        selector(contract)
    );
    if is_initial {
        target.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    } else {
        target.push_str(&format!("&resourceVersion={}", contract.version));
    }
    let floor = contract.history.newest();
    let (status, body) = request(habits, &target).await?;
    match status {
        200 => {}
        410 => return Some(StreamEnd::Expired),
        _ => return None,
    }
    contract.report.count(|counts| counts.streams += 1);
    contract.report.note(&contract.name, "watch");
    if is_initial {
        contract.on_initial_events();
    }
    let floor = is_initial.then_some(floor);
    Some(read(contract, habits, body, floor).await)
}

async fn read(
    contract: &mut Contract,
    habits: &Habits,
    mut body: Incoming,
    mut floor: Option<(usize, u64)>,
) -> StreamEnd {
    let mut rest = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        // A long line arrives in many frames.
        let mut searched = rest.len();
        rest.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(end) = memchr::memchr(b'\n', &rest[searched..]) {
            let line: Vec<u8> = rest.drain(..=searched + end).collect();
            searched = 0;
            let Ok(event) = serde_json::from_slice::<Value>(&line) else {
                // A watch that is forwarded carries what the API server was ordered to send.
                let line = String::from_utf8_lossy(&line).into_owned();
                if !line.contains("garbage as ordered") {
                    contract
                        .report
                        .violation(&contract.name, &format!("no event: {line}"));
                }
                return StreamEnd::Resume;
            };
            let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
            match kind {
                "ERROR" if object["code"] == 410 => return StreamEnd::Expired,
                "ERROR" => {
                    contract.report.note(&contract.name, "ERROR");
                    return StreamEnd::Resume;
                }
                "BOOKMARK" if floor.is_some() => {
                    let annotations = &object["metadata"]["annotations"];
                    if annotations["k8s.io/initial-events-end"] == "true"
                        && let Some(floor) = floor.take()
                    {
                        contract.on_initial_end(identity(object).1, floor);
                    }
                }
                "BOOKMARK" => contract.on_bookmark(identity(object).1),
                "ADDED" if floor.is_some() => contract.on_initial_event(object),
                kind => contract.on_event(kind, object),
            }
            if habits.delay_ms > 0 && contract.report.elapsed() < Duration::from_millis(END_MS) {
                sleep(Duration::from_millis(habits.delay_ms)).await;
            }
        }
    }
    contract.report.note(&contract.name, "end");
    StreamEnd::Resume
}

/// Sends a request on a connection of its own to one of the gateways.
async fn request(habits: &mut Habits, target: &str) -> Option<(u16, Incoming)> {
    let gateway = habits.gateways[habits.random.usize(..habits.gateways.len())].clone();
    timeout(ANSWER_WAIT, send(&gateway, habits.http, target))
        .await
        .ok()?
}

async fn send(gateway: &str, http: HttpVersion, target: &str) -> Option<(u16, Incoming)> {
    let stream = TcpStream::connect((gateway, PORT)).await.ok()?;
    let io = TokioIo::new(stream);
    let request = |target: String| http::Request::get(target).header("host", "gateway");
    let response = match http {
        HttpVersion::Http2 { window } => {
            let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(window);
            let (mut sender, connection) = builder.handshake(io).await.ok()?;
            tokio::spawn(connection);
            let request = request(format!("http://gateway{target}"));
            sender
                .send_request(request.body(Empty::<Bytes>::new()).ok()?)
                .await
        }
        HttpVersion::Http1 => {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.ok()?;
            tokio::spawn(connection);
            let request = request(target.to_owned());
            sender
                .send_request(request.body(Empty::<Bytes>::new()).ok()?)
                .await
        }
    };
    let response = response.ok()?;
    Some((response.status().as_u16(), response.into_body()))
}

/// A shared informer of one gateway, whose store is compared with the API server's at the end.
#[derive(Clone, Default)]
pub(crate) struct InformerClient(Arc<Mutex<Option<SharedInformer<Raw>>>>);

impl InformerClient {
    pub(crate) async fn run(self, gateway: String) -> turmoil::Result {
        let source = ConnectSource::url(&format!("http://{gateway}:{PORT}"))?;
        let client = Arc::new(Client::connect(source).await?);
        let gvr = Gvr::new("", "v1", "configmaps");
        let informer = SharedInformer::new(client, ListWatch::<Raw>::raw(&gvr));
        informer.start();
        *self.0.lock() = Some(informer);
        std::future::pending().await
    }

    /// What the store has other than the newest objects.
    pub(crate) fn behind(&self, newest: &Objects) -> Option<String> {
        let informer = self.0.lock();
        let Some(informer) = &*informer else {
            return Some("not started".to_owned());
        };
        let store = informer.store();
        let objects = store.keys().into_iter().filter_map(|key| {
            let object = store.object(key.as_str())?;
            Some((key.as_str().to_owned(), object.resource_version().0))
        });
        difference(&objects.collect(), newest)
    }
}
