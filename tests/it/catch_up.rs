//! Clients far behind a gateway with a short history: with `--catch-up-resources` they get the latest state of what changed, and do not
//! list again.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, Config};
use kube_fanout::config::{ResourcePattern, ServeSettings};
use kube_fanout::informer::{ListWatch, SharedInformer};
use kube_fanout::resource::CATCH_UP_HEADER;
use kube_fanout::shutdown::Drain;
use kube_fanout::upstream::client::{Client, ConnectSource, ResponseBody};
use kube_fanout::upstream::reflector::RelistReason;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::kube_rs::store_watcher::{Collection, StoreWatcher};
use crate::support::PATIENCE;
use crate::support::gateway::Running;
use crate::support::history::until;
use crate::support::wire::Wire;

const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// Objects before the clients are cut off.
const OBJECTS: usize = 40;
/// Writes while they are: several times the history.
const WRITES: usize = 900;

struct Stage {
    apiserver: Apiserver,
    direct: Arc<Client>,
    gateway: Running,
    /// The clients' way to the gateway.
    wire: Wire,
}

async fn client(address: SocketAddr) -> Arc<Client> {
    let source = ConnectSource::url(&format!("http://{address}/")).unwrap();
    Arc::new(Client::connect(source).await.unwrap())
}

async fn gateway(upstream: SocketAddr, catch_up: &str) -> Running {
    let mut settings = ServeSettings::embedded(format!("http://{upstream}/").parse().unwrap());
    settings.ring.events_max = 100;
    let patterns = catch_up.split(',').filter(|text| !text.is_empty());
    settings.catch_up = patterns
        .map(|text| text.parse::<ResourcePattern>().unwrap())
        .collect();
    Running::start(settings, Drain::default()).await
}

impl Stage {
    async fn new(catch_up: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let apiserver = apiserver::start(listener, Options::default()).unwrap();
        let gateway = gateway(apiserver.address(), catch_up).await;
        let stage = Self {
            direct: client(apiserver.address()).await,
            wire: Wire::to(gateway.address).await,
            apiserver,
            gateway,
        };
        for number in 0..OBJECTS {
            stage.create(number, "old").await;
        }
        stage
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> StatusCode {
        let bytes = body.map_or_else(Bytes::new, |value| value.to_string().into());
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", kind).body(bytes).unwrap();
        let response = self.direct.send(request).await.unwrap();
        let status = response.status();
        response.into_body().collect().await.unwrap();
        status
    }

    async fn create(&self, number: usize, text: &str) {
        let name = format!("o{number}");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"written": text}}, "data": {"text": text},
        });
        let status = self.send(Method::POST, PATH, Some(object)).await;
        assert_eq!(status, StatusCode::CREATED, "{name}");
    }

    /// Creates, changes, deletes and recreates objects. Some stay as they were.
    async fn write_much(&self) {
        for number in 0..WRITES {
            let target = number % (OBJECTS / 2);
            let path = format!("{PATH}/o{target}");
            match number / OBJECTS % 3 {
                0 => {
                    let change = json!({"data": {"text": number.to_string()}});
                    self.send(Method::PATCH, &path, Some(change)).await;
                }
                1 => drop(self.send(Method::DELETE, &path, None).await),
                _ if number % 4 > 0 => {
                    let object = json!({
                        "apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": format!("o{target}"), "labels": {"written": "new"}},
                    });
                    self.send(Method::POST, PATH, Some(object)).await;
                }
                _ => {}
            }
        }
        self.create(OBJECTS, "new").await;
    }

    /// Cuts all clients off, writes, waits until the gateway has everything, and lets the clients return.
    async fn write_unseen(&self) {
        self.wire.set_silent(true);
        self.wire.cut();
        self.write_much().await;
        let list = get(&*client(self.gateway.address).await, PATH).await;
        let list: Value = serde_json::from_slice(&body(list).await).unwrap();
        let names: Vec<_> = list["items"].as_array().unwrap().iter().collect();
        assert!(
            names
                .iter()
                .any(|item| item["metadata"]["name"] == format!("o{OBJECTS}"))
        );
        self.wire.set_silent(false);
    }

    async fn catch_ups(&self) -> f64 {
        metric(self.gateway.admin, "kube_fanout_catch_ups_total").await
    }

    async fn kube_rs(&self, name: &str, config: watcher::Config) -> StoreWatcher {
        let api = |address: SocketAddr| {
            let config = Config::new(format!("http://{address}").parse().unwrap());
            Api::<ConfigMap>::all(kube::Client::try_from(config).unwrap())
        };
        let collection = Collection {
            watched: api(self.wire.address),
            reference: api(self.apiserver.address()),
            dynamic_type: (),
        };
        let mut watcher = StoreWatcher::start(name, collection, config);
        watcher.filled().await;
        watcher
    }
}

async fn get(client: &Client, path: &str) -> http::Response<ResponseBody> {
    let request = Request::get(path).body(Bytes::new()).unwrap();
    client.send(request).await.unwrap()
}

async fn body<B: hyper::body::Body<Error: std::fmt::Debug>>(response: http::Response<B>) -> Bytes {
    let collected = response.into_body().collect().await;
    collected.unwrap().to_bytes()
}

/// The sum of a metric's samples for config maps.
async fn metric(admin: SocketAddr, name: &str) -> f64 {
    let page = body(get(&*client(admin).await, "/metrics").await).await;
    let page = String::from_utf8(page.to_vec()).unwrap();
    let samples = page
        .lines()
        .filter(|line| line.starts_with(&format!("{name}{{")) && line.contains("configmaps"));
    samples
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_far_behind_do_not_list_again_and_have_the_servers_objects() {
    let stage = Stage::new("configmaps").await;
    let informer =
        SharedInformer::<ConfigMap>::new(client(stage.wire.address).await, ListWatch::of_kind());
    informer.start();
    timeout(PATIENCE, informer.synced()).await.unwrap().unwrap();
    let mut watchers = vec![
        stage.kube_rs("lists", watcher::Config::default()).await,
        stage
            .kube_rs("streams", watcher::Config::default().streaming_lists())
            .await,
        stage
            .kube_rs(
                "one name",
                watcher::Config::default().fields("metadata.name=o3"),
            )
            .await,
    ];
    let mut selected = stage
        .kube_rs("selects", watcher::Config::default().labels("written=new"))
        .await;
    stage.write_unseen().await;
    for watcher in &mut watchers {
        watcher.converged().await;
        let stats = watcher.stats();
        assert_eq!(stats.lists_started, 1, "{}: {stats:?}", watcher.name());
        assert_eq!(stats.out_of_order, 0, "{}: {stats:?}", watcher.name());
        assert_eq!(stats.went_back, [""; 0], "{}", watcher.name());
    }
    // The state at its version is not known, so a client with a label selector lists.
    selected.converged().await;
    assert_eq!(selected.stats().lists_started, 2);

    let expected = watchers[0].objects_in_store();
    until("the informer has the server's objects", || {
        let store = informer.store();
        let same = |(key, object): (&String, &Value)| {
            let held = store.object(key.trim_start_matches('/'));
            held.is_some_and(|held| {
                held.metadata.resource_version.as_deref()
                    == object["metadata"]["resourceVersion"].as_str()
            })
        };
        store.len() == expected.len() && expected.iter().all(same)
    })
    .await;
    let counts = informer.counts();
    assert_eq!(
        (counts.replaced, counts.relists(RelistReason::Expired)),
        (1, 0)
    );
    assert!(stage.catch_ups().await >= 4.0);
    // Later events reach all of them.
    stage.create(OBJECTS + 1, "new").await;
    watchers.push(selected);
    for watcher in &mut watchers {
        watcher.converged().await;
    }
    stage.gateway.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_flag_or_for_another_resource_the_answer_is_410() {
    for catch_up in ["", "pods,*.apps"] {
        let stage = Stage::new(catch_up).await;
        let mut watcher = stage.kube_rs("lists", watcher::Config::default()).await;
        stage.write_unseen().await;
        watcher.converged().await;
        assert_eq!(watcher.stats().lists_started, 2, "{catch_up:?}");
        assert!(stage.catch_ups().await < 1.0);
        stage.gateway.ended().await;
    }
}

/// A watch with a time limit, so that it ends by itself.
fn watch_path(version: u64, more: &str) -> String {
    format!("{PATH}?watch=1&resourceVersion={version}&timeoutSeconds=1&allowWatchBookmarks=1{more}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catch_up_says_so_and_comes_in_the_order_of_versions_with_a_bookmark_last() {
    let stage = Stage::new("*").await;
    let near = client(stage.gateway.address).await;
    let list: Value = serde_json::from_slice(&body(get(&near, PATH).await).await).unwrap();
    let listed = list["metadata"]["resourceVersion"].as_str().unwrap();
    let listed: u64 = listed.parse().unwrap();
    stage.write_unseen().await;
    for (version, more, header, last) in [
        (listed, "", true, "BOOKMARK"),
        (listed, "&labelSelector=written=new", false, "ERROR"),
        (
            listed,
            "&fieldSelector=metadata.name%3Do3",
            true,
            "BOOKMARK",
        ),
        (1, "", false, "ERROR"),
    ] {
        let response = get(&near, &watch_path(version, more)).await;
        let found = response.headers().get(CATCH_UP_HEADER);
        assert_eq!(
            found.map(|value| value.to_str().unwrap()),
            header.then_some("latest-state"),
            "{version} {more}"
        );
        let text = String::from_utf8(body(response).await.to_vec()).unwrap();
        let events: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let versions: Vec<u64> = events
            .iter()
            .filter_map(|event| event["object"]["metadata"]["resourceVersion"].as_str())
            .map(|version| version.parse().unwrap())
            .collect();
        assert!(versions.is_sorted(), "{versions:?}");
        assert_eq!(events.last().unwrap()["type"], last, "{version} {more}");
        let has = |kind: &str| events.iter().any(|event| event["type"] == kind);
        assert!(!has("MODIFIED"));
        if more.is_empty() && header {
            assert!(has("ADDED") && has("DELETED"));
        }
    }
    stage.gateway.ended().await;
}

/// A gateway serves others from what it reads, so it needs every state, or must know where some are missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_behind_a_gateway_lists_instead_and_its_clients_do_not() {
    let stage = Stage::new("*").await;
    let second = gateway(stage.wire.address, "").await;
    let api = |address: SocketAddr| {
        let config = Config::new(format!("http://{address}").parse().unwrap());
        Api::<ConfigMap>::all(kube::Client::try_from(config).unwrap())
    };
    let collection = Collection {
        watched: api(second.address),
        reference: api(stage.apiserver.address()),
        dynamic_type: (),
    };
    let selected = watcher::Config::default().labels("written=new");
    let mut watcher = StoreWatcher::start("behind two gateways", collection, selected);
    watcher.filled().await;
    stage.write_unseen().await;
    watcher.converged().await;
    watcher.check_undisturbed();
    assert!(stage.catch_ups().await >= 1.0, "it was offered a catch-up");
    let relists = metric(second.admin, "kube_fanout_upstream_relists_total").await;
    assert!(relists >= 1.0, "{relists}");
    second.ended().await;
    stage.gateway.ended().await;
}

/// Reads a watch up to its first bookmark; returns the number of bytes.
async fn read_to_bookmark(response: http::Response<ResponseBody>) -> usize {
    let (mut body, mut len, mut tail) = (response.into_body(), 0, Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.unwrap().into_data() else {
            continue;
        };
        len += data.len();
        // The bookmark is the last line.
        tail.extend_from_slice(&data);
        let start = tail.len().saturating_sub(500);
        tail.drain(..start);
        let text = String::from_utf8_lossy(&tail);
        if text
            .lines()
            .any(|line| line.starts_with("{\"type\":\"BOOKMARK\""))
        {
            break;
        }
    }
    len
}

/// The clients' part of each figure is small: they read bytes and parse nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn bytes_and_time_of_a_catch_up_against_a_list() {
    let (objects, hot, writes) = (30_000, 5_000, 50_000);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec![format!("configmaps={objects}").parse().unwrap()],
        object_len: 1_000,
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let gateway = gateway(apiserver.address(), "*").await;
    let direct = client(apiserver.address()).await;
    let near = client(gateway.address).await;
    let path = "/api/v1/configmaps";
    let list: Value = serde_json::from_slice(&body(get(&near, path).await).await).unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let paths: Vec<String> = list["items"].as_array().unwrap()[..hot]
        .iter()
        .map(|item| {
            let field = |name: &str| item["metadata"][name].as_str().unwrap();
            let (namespace, name) = (field("namespace"), field("name"));
            format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
        })
        .collect();
    for number in 0..writes {
        let path = &paths[number % hot];
        // The last round deletes every tenth object.
        let request = if number + hot >= writes && number % 10 == 0 {
            Request::delete(path).body(Bytes::new())
        } else {
            let change = json!({"metadata": {"labels": {"write": number.to_string()}}});
            Request::patch(path)
                .header("content-type", "application/merge-patch+json")
                .body(Bytes::from(change.to_string()))
        };
        body(direct.send(request.unwrap()).await.unwrap()).await;
    }
    for _ in 0..3 {
        let started = std::time::Instant::now();
        let len = body(get(&near, path).await).await.len();
        let list_time = started.elapsed();
        let started = std::time::Instant::now();
        let watch = format!(
            "{path}?watch=1&resourceVersion={version}&timeoutSeconds=60&allowWatchBookmarks=1"
        );
        let caught_up = read_to_bookmark(get(&near, &watch).await).await;
        println!(
            "list: {len} bytes, {list_time:?}; catch-up: {caught_up} bytes, {:?}",
            started.elapsed()
        );
    }
    gateway.ended().await;
}
