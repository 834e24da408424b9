//! A whole gateway, parts of which panic: its clients recover, and it stays ready.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::slot::tests::{FATAL, Fragile};
use super::*;
use crate::watch::{WatchRecorder, WatchTotals};
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};

mod memory;

const TIMEOUT: Duration = Duration::from_secs(30);
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const READY: &str = "cache_state{encoding=\"json\",group=\"\",resource=\"configmaps\",state=\"ready\",version=\"v1\"}";
/// Whether the next delivery must panic.
static IS_FRAGILE: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct FragileTally(Arc<dyn WatchRecorder>);

impl WatchRecorder for FragileTally {
    fn started(&self) {
        self.0.started();
    }

    fn delivered(&self, events: u64, bytes: u64) {
        let is_fragile = events > 0 && IS_FRAGILE.swap(false, Ordering::Relaxed);
        assert!(!is_fragile, "planted");
        self.0.delivered(events, bytes);
    }

    fn delayed(&self, by: Duration, clients: u64) {
        self.0.delayed(by, clients);
    }

    fn ended(&self, totals: WatchTotals) {
        self.0.ended(totals);
    }
}

/// An API server, a gateway in front of it, and a client.
struct Stage {
    apiserver: Apiserver,
    address: SocketAddr,
    admin: SocketAddr,
    client: legacy::Client<HttpConnector, Full<Bytes>>,
    drain: Drain,
    running: JoinSet<()>,
}

/// A watch and its connection's task.
struct Watch {
    body: Incoming,
    read: String,
    _connection: JoinSet<()>,
}

impl Stage {
    async fn new(hooks: Hooks) -> Self {
        Self::with(hooks, |_| {}).await
    }

    /// A stage whose gateway's settings are adjusted by the test.
    async fn with(hooks: Hooks, adjust: impl FnOnce(&mut ServeSettings)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let apiserver = apiserver::start(listener, Options::default()).unwrap();
        let upstream = format!("http://{}/", apiserver.address());
        let mut settings = ServeSettings::embedded(upstream.parse().unwrap());
        adjust(&mut settings);
        let gateway = Gateway::build_with(settings, hooks).await.unwrap();
        let drain = Drain::with_timeout(Duration::from_millis(100));
        let (address, admin) = (gateway.address().unwrap(), gateway.admin_address().unwrap());
        let mut running = JoinSet::new();
        running.spawn(gateway.run(drain.clone()));
        Self {
            apiserver,
            address,
            admin,
            client: legacy::Client::builder(TokioExecutor::new()).build_http(),
            drain,
            running,
        }
    }

    async fn get(&self, server: SocketAddr, target: &str) -> Response<String> {
        let uri = format!("http://{server}{target}").parse().unwrap();
        let (head, body) = self.client.get(uri).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Response::from_parts(head, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Creates an object at the API server; returns the collection's version before.
    async fn create(&self, collection: &str, name: &str) -> String {
        let list = self.get(self.apiserver.address(), collection).await;
        let list: Value = serde_json::from_str(list.body()).unwrap();
        let object = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        let request = Request::post(format!("http://{}{collection}", self.apiserver.address()))
            .header("content-type", "application/json")
            .body(Full::from(object.to_string()))
            .unwrap();
        let created = self.client.request(request).await.unwrap();
        assert_eq!(created.status(), 201);
        let version = &list["metadata"]["resourceVersion"];
        version.as_str().unwrap().to_owned()
    }

    /// A watch from the current state, over a connection of its own.
    async fn watch(&self, target: &str) -> Watch {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let mut running = JoinSet::new();
        running.spawn(async move { drop(connection.await) });
        let request = Request::get(target).header("host", "a");
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        Watch {
            body: answer.into_body(),
            read: String::new(),
            _connection: running,
        }
    }

    async fn metric(&self, series: &str) -> String {
        let page = self.get(self.admin, "/metrics").await;
        let mut lines = page.body().lines();
        let value = lines.find_map(|line| line.strip_prefix("kube_fanout_")?.strip_prefix(series));
        value.unwrap_or_default().trim().to_owned()
    }

    /// Waits until a metric has this value; the gateway must be ready all the time.
    async fn wait_for_metric(&self, series: &str, value: &str) {
        let said = async {
            while self.metric(series).await != value {
                assert_eq!(self.get(self.admin, "/readyz").await.status(), 200);
                tokio::task::yield_now().await;
            }
        };
        let in_time = tokio::time::timeout(TIMEOUT, said).await;
        assert!(in_time.is_ok(), "{series}: {}", self.metric(series).await);
    }

    async fn end(mut self) {
        assert_eq!(self.get(self.admin, "/readyz").await.status(), 200);
        self.drain.begin();
        while let Some(ended) = self.running.join_next().await {
            ended.unwrap();
        }
    }
}

impl Watch {
    /// Reads until the watch has shown this object.
    async fn shows(&mut self, name: &str) {
        let expected = format!("\"name\":\"{name}\"");
        while !self.read.contains(&expected) {
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await;
            let data = frame.unwrap().expect("the watch continues").unwrap();
            self.read
                .push_str(std::str::from_utf8(data.data_ref().unwrap()).unwrap());
        }
    }

    /// Reads until the watch shows this object (true), or ends or breaks (false).
    async fn ends_or_shows(mut self, name: &str) -> bool {
        let expected = format!("\"name\":\"{name}\"");
        while !self.read.contains(&expected) {
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await;
            match frame.expect("the watch shows the object or ends") {
                Some(Ok(data)) => {
                    let text = std::str::from_utf8(data.data_ref().unwrap()).unwrap();
                    self.read.push_str(text);
                }
                Some(Err(_)) | None => return false,
            }
        }
        true
    }

    /// Reads until the stream ends (true) or breaks (false).
    async fn ends(mut self) -> bool {
        loop {
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await;
            match frame.expect("the watch ends") {
                Some(Ok(_)) => {}
                Some(Err(_)) => return false,
                None => return true,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_what_fills_a_cache_ends_its_watches_and_no_others() {
    let stage = Stage::new(Hooks {
        observer: |hub| Arc::new(Fragile(hub)),
        ..Hooks::default()
    })
    .await;
    let mut first = stage.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    let mut other = stage.watch(&format!("{SERVICES}?watch=1")).await;
    stage.create(CONFIGMAPS, "before").await;
    first.shows("before").await;
    stage.create(CONFIGMAPS, FATAL).await;
    assert!(
        first.ends().await,
        "the watch ends cleanly, so that its client reconnects"
    );
    let given_up = "cache_given_up_total{encoding=\"json\",group=\"\",reason=\"panicked\",resource=\"configmaps\",version=\"v1\"}";
    stage.wait_for_metric(given_up, "1").await;
    // Requests are forwarded in the meantime; then there is a cache again, with the object that broke the first one.
    let list = stage.get(stage.address, CONFIGMAPS).await;
    assert!(list.status() == 200 && list.body().contains(FATAL));
    stage.wait_for_metric(READY, "1").await;
    let mut second = stage.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    second.shows(FATAL).await;
    stage.create(CONFIGMAPS, "after").await;
    second.shows("after").await;
    stage.create(SERVICES, "undisturbed").await;
    other.shows("undisturbed").await;
    stage.wait_for_metric(given_up, "1").await;
    drop((second, other));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_what_delivers_ends_its_streams_and_another_goes_on() {
    let stage = Stage::new(Hooks {
        watch_recorder: |recorder| Arc::new(FragileTally(recorder)),
        ..Hooks::default()
    })
    .await;
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(stage.watch(&format!("{CONFIGMAPS}?watch=1")).await);
    }
    stage.create(CONFIGMAPS, "before").await;
    for watch in &mut watches {
        watch.shows("before").await;
    }
    IS_FRAGILE.store(true, Ordering::Relaxed);
    let version = stage.create(CONFIGMAPS, FATAL).await;
    let ends = "task_unexpected_ends_total{task=\"delivery_worker\"}";
    stage.wait_for_metric(ends, "1").await;
    // A client whose watch has broken reconnects at its last version, and every client gets every event.
    let again = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}");
    stage.create(CONFIGMAPS, "after").await;
    let mut broken = 0;
    for watch in watches {
        if !watch.ends_or_shows("after").await {
            broken += 1;
            let mut watch = stage.watch(&again).await;
            watch.shows(FATAL).await;
            watch.shows("after").await;
        }
    }
    assert!(
        (1..20).contains(&broken),
        "{broken} watches of one worker are broken"
    );
    stage.wait_for_metric(READY, "1").await;
    stage.wait_for_metric(ends, "1").await;
    stage.end().await;
}
