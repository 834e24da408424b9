//! What clients see, over in-memory streams. Time is paused: where a test waits, it passes at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step fails the test"
)]

mod auth;
mod certificates;
mod faults;
mod identities;
mod impersonation;
mod metadata;
mod reviews;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use kube_fanout_testkit::apiserver::{Apiserver, Listener, Options, start, start_until};

const PODS: &str = "/api/v1/namespaces/default/pods";
const STREAMED: &str =
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// A network in memory.
struct Memory(mpsc::Receiver<DuplexStream>);

impl Listener for Memory {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        match self.0.recv().await {
            Some(stream) => Ok((stream, self.local_addr()?)),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(([127, 0, 0, 1], 1).into())
    }
}

/// A client of one server.
struct Client(mpsc::Sender<DuplexStream>);

fn network() -> (Client, Memory) {
    let (sender, receiver) = mpsc::channel(100);
    (Client(sender), Memory(receiver))
}

struct Bench {
    server: Apiserver,
    client: Client,
}

impl Bench {
    fn new() -> Self {
        Self::with(Options::default())
    }

    /// A server with these options and the custom kind `Widget`.
    fn with(options: Options) -> Self {
        let (client, listener) = network();
        let extra_kinds = vec!["widgets.v1.example.com=Widget".parse().unwrap()];
        let options = Options {
            extra_kinds,
            ..options
        };
        let server = start(listener, options).unwrap();
        Self { server, client }
    }

    /// Creates pods in the order of their names. The first has version 2.
    async fn with_pods(names: &[&str]) -> Self {
        let bench = Self::new();
        for name in names {
            let pod = json!({"metadata": {"name": name}});
            assert_eq!(bench.client.send("POST", PODS, pod).await.0, 201);
        }
        bench
    }

    fn order(&self, fault: Fault) {
        let order = FaultOrder {
            fault,
            verb: None,
            resource: None,
            count: 1,
        };
        self.server.order(order).unwrap();
    }

    /// Orders a fault over HTTP.
    async fn order_json(&self, order: Value) {
        let (code, answer) = self.client.send("POST", "/debug/faults", order).await;
        assert_eq!(code, 200, "{answer}");
    }
}

impl Client {
    async fn connect(&self) -> DuplexStream {
        let (mine, its) = tokio::io::duplex(64 << 10);
        self.0.send(its).await.unwrap();
        mine
    }

    /// Sends a request on a connection of its own.
    async fn exchange(&self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let io = TokioIo::new(self.connect().await);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await
    }

    async fn request(
        &self,
        method: &str,
        target: &str,
        accept: &str,
        body: Value,
    ) -> Response<Incoming> {
        let content_type = match (method, &body) {
            ("PATCH", Value::Array(_)) => "application/json-patch+json",
            ("PATCH", _) => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = match body.is_null() {
            true => Bytes::new(),
            false => body.to_string().into(),
        };
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header("accept", accept)
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(body))
            .unwrap();
        self.exchange(request).await.unwrap()
    }

    async fn send(&self, method: &str, target: &str, body: Value) -> (u16, Value) {
        let response = self.request(method, target, "application/json", body).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn get(&self, target: &str) -> (u16, Value) {
        self.send("GET", target, Value::Null).await
    }

    /// The version of a list, and the names of its objects.
    async fn list(&self, target: &str) -> (String, Vec<String>) {
        let (code, list) = self.get(target).await;
        assert_eq!(code, 200, "{list}");
        let items = list["items"].as_array().unwrap().iter();
        let names = items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        (text(&list["metadata"]["resourceVersion"]), names.collect())
    }

    async fn label(&self, name: &str, value: &str) -> (u16, Value) {
        let patch = json!({"metadata": {"labels": {"n": value}}});
        self.send("PATCH", &format!("{PODS}/{name}"), patch).await
    }

    async fn watch(&self, target: &str) -> Watch {
        self.watch_accepting(target, "application/json").await
    }

    async fn watch_accepting(&self, target: &str, accept: &str) -> Watch {
        let response = self.request("GET", target, accept, Value::Null).await;
        assert_eq!(response.status(), 200, "{target}");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        Watch {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }
}

async fn collected(response: Response<Incoming>) -> Response<Bytes> {
    let (head, body) = response.into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

fn value(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

#[track_caller]
fn check_refused(response: &Response<Bytes>, code: u16, message: &str) {
    let status = value(response);
    assert_eq!(
        (response.status().as_u16(), &status["message"]),
        (code, &message.into())
    );
    assert_eq!(status["code"], code);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

struct Watch {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next line; `None` at a clean end.
    async fn line(&mut self) -> hyper::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.buffer.drain(..=end).collect()));
            }
            match self.body.frame().await {
                Some(frame) => self.buffer.extend(frame?.into_data().unwrap()),
                None => return Ok(None),
            }
        }
    }

    /// The next event; `None` at a clean end.
    async fn event(&mut self) -> Option<Value> {
        let line = self.line().await.unwrap()?;
        Some(serde_json::from_slice(&line).unwrap())
    }

    /// The next event's type, name and version.
    async fn next(&mut self) -> String {
        let event = self.event().await.expect("the watch has ended");
        let metadata = &event["object"]["metadata"];
        let name = metadata["name"].as_str().unwrap_or("-");
        let version = metadata["resourceVersion"].as_str().unwrap_or("-");
        format!("{} {name} {version}", event["type"].as_str().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_list_s_version_gets_every_later_change() {
    let bench = Bench::with_pods(&["a"]).await;
    let client = &bench.client;
    let listed = client.list("/api/v1/pods").await;
    assert_eq!(listed, ("2".to_owned(), vec!["a".to_owned()]));
    let mut watch = client.watch("/api/v1/pods?watch=1&resourceVersion=2").await;
    client
        .send("POST", PODS, json!({"metadata": {"name": "b"}}))
        .await;
    client.label("a", "1").await;
    client
        .send("DELETE", &format!("{PODS}/b"), Value::Null)
        .await;
    for expected in ["ADDED b 3", "MODIFIED a 4", "DELETED b 5"] {
        assert_eq!(watch.next().await, expected);
    }
    assert_eq!(bench.server.watch_count(), 1);
    bench.order(Fault::EndWatches);
    assert_eq!(watch.event().await, None);
    assert_eq!(bench.server.watch_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_a_selector_is_deleted_in_its_old_state_and_with_the_new_version() {
    let bench = Bench::with_pods(&["a"]).await;
    let client = &bench.client;
    let target = format!("{PODS}?watch=1&resourceVersion=2&labelSelector=n%3D1");
    let mut watch = client.watch(&target).await;
    for value in ["1", "2", "3", "1"] {
        client.label("a", value).await;
    }
    assert_eq!(watch.next().await, "ADDED a 3");
    let left = watch.event().await.unwrap();
    assert_eq!(left["type"], "DELETED");
    assert_eq!(left["object"]["metadata"]["labels"]["n"], "1");
    assert_eq!(left["object"]["metadata"]["resourceVersion"], "4");
    assert_eq!(watch.next().await, "ADDED a 6");
}

#[tokio::test(start_paused = true)]
async fn the_pages_of_a_list_are_of_one_state_until_it_is_compacted() {
    let bench = Bench::with_pods(&["a", "b", "c", "d"]).await;
    let client = &bench.client;
    let (_, first) = client.get("/api/v1/pods?limit=2").await;
    let metadata = &first["metadata"];
    assert_eq!(
        (
            &metadata["resourceVersion"],
            &metadata["remainingItemCount"]
        ),
        (&json!("5"), &json!(2))
    );
    client
        .send("DELETE", &format!("{PODS}/c"), Value::Null)
        .await;
    let rest = format!(
        "/api/v1/pods?limit=2&continue={}",
        text(&metadata["continue"])
    );
    let expected = ("5".to_owned(), vec!["c".to_owned(), "d".to_owned()]);
    assert_eq!(client.list(&rest).await, expected);
    let selected = client
        .get("/api/v1/pods?limit=1&fieldSelector=metadata.name!%3Dx")
        .await
        .1;
    assert_eq!(selected["metadata"]["remainingItemCount"], Value::Null);
    bench.order(Fault::Compact);
    let (code, status) = client.get(&rest).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let latest = format!(
        "/api/v1/pods?continue={}",
        text(&status["metadata"]["continue"])
    );
    assert_eq!(
        client.list(&latest).await,
        ("6".to_owned(), vec!["d".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_of_an_exact_version_undoes_what_came_later() {
    let bench = Bench::with_pods(&["a", "b"]).await;
    let client = &bench.client;
    client
        .send("DELETE", &format!("{PODS}/a"), Value::Null)
        .await;
    client.label("b", "1").await;
    for (version, names) in [
        ("2", &["a"][..]),
        ("3", &["a", "b"]),
        ("4", &["b"]),
        ("5", &["b"]),
    ] {
        let exact = format!("/api/v1/pods?resourceVersion={version}&resourceVersionMatch=Exact");
        let (found, found_names) = client.list(&exact).await;
        assert_eq!(
            (found.as_str(), found_names),
            (version, names.iter().map(|&name| name.to_owned()).collect())
        );
    }
    bench.order(Fault::Compact);
    let exact = "/api/v1/pods?resourceVersion=3&resourceVersionMatch=Exact";
    assert_eq!(client.get(exact).await.0, 410);
}

#[tokio::test(start_paused = true)]
async fn a_version_from_the_future_is_waited_for_and_then_refused() {
    let bench = Bench::with_pods(&["a"]).await;
    let client = &bench.client;
    let asked_at = Instant::now();
    let (code, status) = client.get("/api/v1/pods?resourceVersion=9").await;
    assert_eq!(
        (code, &status["details"]["retryAfterSeconds"]),
        (504, &json!(1))
    );
    assert_eq!(
        status["message"],
        "Timeout: Too large resource version: 9, current: 2"
    );
    assert!(asked_at.elapsed() >= Duration::from_secs(3));
    let mut watch = client
        .watch(&format!("{PODS}?watch=1&resourceVersion=9&{STREAMED}"))
        .await;
    let error = watch.event().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(504))
    );
    assert_eq!(watch.event().await, None);
    let written = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.client.label("a", "1").await;
        bench
    });
    let waiting = Instant::now();
    drop(written.await.unwrap());
    assert!(waiting.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_is_in_the_order_of_keys_and_ends_with_the_marker() {
    let bench = Bench::with_pods(&["b", "a"]).await;
    let client = &bench.client;
    let mut watch = client
        .watch(&format!("/api/v1/pods?watch=1&{STREAMED}"))
        .await;
    assert_eq!(watch.next().await, "ADDED a 3");
    assert_eq!(watch.next().await, "ADDED b 2");
    let marker = watch.event().await.unwrap();
    let metadata =
        json!({"resourceVersion": "3", "annotations": {"k8s.io/initial-events-end": "true"}});
    assert_eq!(
        (&marker["type"], &marker["object"]["metadata"]),
        (&json!("BOOKMARK"), &metadata)
    );
    client.label("a", "1").await;
    assert_eq!(watch.next().await, "MODIFIED a 4");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_a_bookmark_each_minute_and_one_before_its_end() {
    let bench = Bench::with_pods(&["a"]).await;
    let client = &bench.client;
    let target =
        "/api/v1/nodes?watch=1&resourceVersion=2&allowWatchBookmarks=true&timeoutSeconds=90";
    let started_at = Instant::now();
    let mut watch = client.watch(target).await;
    client.label("a", "1").await;
    assert_eq!(watch.next().await, "BOOKMARK - 3");
    assert_eq!(started_at.elapsed().as_secs(), 60);
    client.label("a", "2").await;
    assert_eq!(watch.next().await, "BOOKMARK - 4");
    assert_eq!(started_at.elapsed().as_secs(), 88);
    assert_eq!(watch.event().await, None);
    assert_eq!(started_at.elapsed().as_secs(), 90);
}

/// Time passes here only while all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_watch_without_bookmarks_waits_for_its_next_event() {
    let bench = Bench::with_pods(&["a"]).await;
    let client = &bench.client;
    let mut watch = client.watch("/api/v1/pods?watch=1&resourceVersion=2").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    client.label("a", "1").await;
    assert_eq!(watch.next().await, "MODIFIED a 3");
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_the_history_gets_410_in_its_stream_and_open_ones_go_on() {
    let bench = Bench::with_pods(&["a", "b"]).await;
    let client = &bench.client;
    let mut open = client.watch("/api/v1/pods?watch=1&resourceVersion=1").await;
    assert_eq!(open.next().await, "ADDED a 2");
    assert_eq!(open.next().await, "ADDED b 3");
    client
        .send("POST", "/api/v1/nodes", json!({"metadata": {"name": "n"}}))
        .await;
    bench.order(Fault::Compact);
    let mut late = client.watch("/api/v1/pods?watch=1&resourceVersion=1").await;
    let error = late.event().await.unwrap();
    assert_eq!(
        error["object"]["message"],
        "too old resource version: 1 (4)"
    );
    assert_eq!(late.event().await, None);
    client.label("a", "1").await;
    assert_eq!(open.next().await, "MODIFIED a 5");
    let mut from_floor = client.watch("/api/v1/pods?watch=1&resourceVersion=4").await;
    assert_eq!(from_floor.next().await, "MODIFIED a 5");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_lags_shows_its_old_state_and_catches_up() {
    let bench = Bench::with_pods(&["a"]).await;
    let (client, listener) = network();
    let replica = bench.server.replica(listener).unwrap();
    let mut early = client.watch("/api/v1/pods?watch=1&resourceVersion=1").await;
    let error = early.event().await.unwrap();
    assert_eq!(
        error["object"]["message"],
        "too old resource version: 1 (2)"
    );
    replica.set_lagging(true);
    let mut watch = client.watch("/api/v1/pods?watch=1&resourceVersion=2").await;
    bench.client.label("a", "1").await;
    assert_eq!(client.list("/api/v1/pods?resourceVersion=0").await.0, "2");
    assert_eq!(client.get("/api/v1/pods").await.0, 504);
    replica.set_lagging(false);
    assert_eq!(watch.next().await, "MODIFIED a 3");
    assert_eq!(client.list("/api/v1/pods").await.0, "3");
}

#[tokio::test(start_paused = true)]
async fn an_object_with_finalizers_is_deleted_when_the_last_one_goes() {
    let bench = Bench::new();
    let client = &bench.client;
    let pod = json!({"metadata": {"name": "a", "finalizers": ["x.io/one"]}});
    client.send("POST", PODS, pod).await;
    let one = format!("{PODS}/a");
    let (_, marked) = client.send("DELETE", &one, Value::Null).await;
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let more = json!({"metadata": {"finalizers": ["x.io/one", "x.io/two"]}});
    assert_eq!(client.send("PATCH", &one, more).await.0, 422);
    let none = json!({"metadata": {"finalizers": null}});
    assert_eq!(client.send("PATCH", &one, none).await.0, 200);
    assert_eq!(client.get(&one).await.0, 404);
    let mut watch = client.watch("/api/v1/pods?watch=1&resourceVersion=1").await;
    for expected in ["ADDED a 2", "MODIFIED a 3", "DELETED a 4"] {
        assert_eq!(watch.next().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn writes_are_checked_against_the_stored_object() {
    let bench = Bench::with_pods(&["a"]).await;
    let client = &bench.client;
    let one = format!("{PODS}/a");
    let (_, stored) = client.get(&one).await;
    assert_eq!(client.send("PUT", &one, stored.clone()).await.1, stored);
    client.label("a", "1").await;
    assert_eq!(client.send("PUT", &one, stored.clone()).await.0, 409);
    let exists = client
        .send("POST", PODS, json!({"metadata": {"name": "a"}}))
        .await;
    assert_eq!(
        (exists.0, &exists.1["reason"]),
        (409, &json!("AlreadyExists"))
    );
    let other_uid = json!({"preconditions": {"uid": "other"}});
    assert_eq!(client.send("DELETE", &one, other_uid).await.0, 409);
    let bad_label = json!({"metadata": {"labels": {"a/b/c": "x"}}});
    assert_eq!(client.send("PATCH", &one, bad_label).await.0, 422);
    let bad_type = json!({"metadata": {"name": "b", "labels": []}});
    assert_eq!(client.send("POST", PODS, bad_type).await.0, 400);
    let dry = json!({"metadata": {"name": "dry"}});
    let dry = client
        .send("POST", &format!("{PODS}?dryRun=All"), dry)
        .await;
    assert_eq!(dry.0, 400);
    assert_eq!(client.get(&format!("{PODS}/dry")).await.0, 404);
    let generated = json!({"metadata": {"generateName": "g-"}});
    let (_, generated) = client.send("POST", PODS, generated).await;
    assert_eq!(text(&generated["metadata"]["name"]).len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_only_through_its_subresource() {
    let bench = Bench::with_pods(&["a"]).await;
    let client = &bench.client;
    let one = format!("{PODS}/a");
    let status = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    let (_, whole) = client.send("PATCH", &one, status.clone()).await;
    assert_eq!(
        (&whole["spec"]["nodeName"], &whole["status"]),
        (&json!("n"), &Value::Null)
    );
    assert_eq!(whole["metadata"]["generation"], 2);
    let other = json!({"spec": {"nodeName": "m"}, "status": {"phase": "Running"}});
    let (_, part) = client.send("PATCH", &format!("{one}/status"), other).await;
    assert_eq!(
        (&part["spec"]["nodeName"], &part["status"]["phase"]),
        (&json!("n"), &json!("Running"))
    );
    assert_eq!(part["metadata"]["generation"], 2);
    let running = client
        .list("/api/v1/pods?fieldSelector=status.phase%3DRunning")
        .await;
    assert_eq!(running.1, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_patch_cannot_grow_or_nest_an_object_without_bound() {
    let bench = Bench::with_pods(&["a"]).await;
    let client = &bench.client;
    let one = format!("{PODS}/a");
    let add = json!({"op": "add", "path": "/spec", "value": {"a": "x".repeat(100)}});
    let double = json!({"op": "copy", "from": "/spec", "path": "/spec/b"});
    let patch = Value::Array([vec![add.clone()], vec![double; 200]].concat());
    assert_eq!(client.send("PATCH", &one, patch).await.0, 422);
    assert_eq!(client.send("PATCH", &one, json!([add])).await.0, 200);
    let many = vec![json!({"op": "test", "path": "/kind", "value": "Pod"}); 10_001];
    assert_eq!(client.send("PATCH", &one, Value::Array(many)).await.0, 413);
}

#[tokio::test(start_paused = true)]
async fn answers_have_the_headers_and_the_form_of_a_real_server_s() {
    let bench = Bench::new();
    let request = Request::post(PODS)
        .header("audit-id", "an-audit-id")
        .body(Full::new(r#"{"metadata":{"name":"p"}}"#.into()))
        .unwrap();
    let created = collected(bench.client.exchange(request).await.unwrap()).await;
    assert_eq!(created.status(), StatusCode::CREATED);
    assert_eq!(created.headers()["audit-id"], "an-audit-id");
    assert_eq!(created.headers()["cache-control"], "no-cache, private");
    assert!(created.body().ends_with(b"}\n"));
    let one = format!("{PODS}/p");
    let (_, deleted) = bench.client.send("DELETE", &one, Value::Null).await;
    assert_eq!(deleted["status"], "Success");
    let (code, missing) = bench.client.get(&one).await;
    assert_eq!(
        (code, &missing["message"]),
        (404, &json!("pods \"p\" not found"))
    );
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_not_served_are_refused_as_a_real_server_does() {
    let bench = Bench::new();
    let not_allowed = "the server does not allow this method on the requested resource";
    for (method, target, content_type, body, code, message) in [
        (
            "POST",
            PODS,
            "application/json",
            " ".repeat((3 << 20) + 1),
            413,
            "Request entity too large: limit is 3145728",
        ),
        (
            "PUT",
            PODS,
            "application/json",
            "{}".to_owned(),
            405,
            not_allowed,
        ),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(body.into()))
            .unwrap();
        let response = collected(bench.client.exchange(request).await.unwrap()).await;
        check_refused(&response, code, message);
    }
    for (target, code) in [
        ("limit=x", 400),
        ("labelSelector===", 400),
        ("fieldSelector=spec.nope%3Dx", 400),
        ("resourceVersion=x", 400),
        ("continue=x", 400),
        ("resourceVersionMatch=Exact", 422),
    ] {
        let (found, status) = bench.client.get(&format!("{PODS}?{target}")).await;
        assert_eq!((found, &status["code"]), (code, &json!(code)), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selector() {
    let bench = Bench::with_pods(&["a", "b", "c"]).await;
    let client = &bench.client;
    client.label("a", "1").await;
    client.label("c", "1").await;
    let selected = format!("{PODS}?labelSelector=n%3D1&fieldSelector=metadata.name!%3Dc");
    let (_, deleted) = client.send("DELETE", &selected, Value::Null).await;
    assert_eq!(deleted["items"].as_array().unwrap().len(), 1);
    assert_eq!(client.list(PODS).await.1, ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn initial_objects_have_their_length_and_churn_changes_them() {
    let bench = Bench::with(Options {
        objects: vec!["pods=50".parse().unwrap(), "configmaps=10".parse().unwrap()],
        object_len: 1_000,
        seed: Some(7),
        ..Options::default()
    });
    let client = &bench.client;
    let (version, names) = client.list("/api/v1/pods").await;
    assert_eq!((version.as_str(), names.len()), ("61", 50));
    let (_, pod) = client.get("/api/v1/namespaces/ns-07/pods/pod-000007").await;
    assert!((950..1_050).contains(&pod.to_string().len()), "{pod}");
    let mut watch = client
        .watch("/api/v1/configmaps?watch=1&resourceVersion=61")
        .await;
    bench.server.set_churn(200);
    watch.next().await;
    watch.next().await;
}

#[tokio::test(start_paused = true)]
async fn discovery_is_served_in_both_forms() {
    let bench = Bench::new();
    let (_, widgets) = bench.client.get("/apis/example.com/v1").await;
    assert_eq!(widgets["resources"][0]["name"], "widgets");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let response = bench
        .client
        .request(
            "GET",
            "/apis",
            &format!("{accept},application/json"),
            Value::Null,
        )
        .await;
    assert_eq!(response.headers()[CONTENT_TYPE], accept);
    let groups = value(&collected(response).await);
    let mut groups = groups["items"].as_array().unwrap().iter();
    assert!(groups.any(|group| group["metadata"]["name"] == "apps"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_ends_watches_between_events() {
    let (client, listener) = network();
    let (stop, is_stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async { is_stopped.await.unwrap() };
    let server = start_until(listener, Options::default(), stopped).unwrap();
    let mut watch = client.watch("/api/v1/pods?watch=1&resourceVersion=1").await;
    let pod = json!({"metadata": {"name": "a"}});
    client.send("POST", PODS, pod).await;
    assert_eq!(watch.next().await, "ADDED a 2");
    stop.send(()).unwrap();
    assert_eq!(watch.event().await, None);
    drop(watch);
    server.ended().await;
}

#[tokio::test(start_paused = true)]
async fn dropping_a_server_closes_its_connections() {
    let bench = Bench::with_pods(&["a"]).await;
    let mut watch = bench
        .client
        .watch("/api/v1/pods?watch=1&resourceVersion=2")
        .await;
    drop(bench);
    assert!(watch.line().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn metadata_of_other_types_is_refused() {
    let bench = Bench::new();
    for metadata in [
        json!({"name": "a", "ownerReferences": {"a": 1}}),
        json!({"name": "a", "ownerReferences": [{"uid": 7}]}),
        json!({"name": "a", "creationTimestamp": []}),
        json!({"name": "a", "managedFields": "x"}),
    ] {
        let pod = json!({"metadata": metadata});
        assert_eq!(
            bench.client.send("POST", PODS, pod.clone()).await.0,
            400,
            "{pod}"
        );
    }
    let incomplete = json!({"metadata": {"name": "a", "ownerReferences": [{"kind": "Pod"}]}});
    assert_eq!(bench.client.send("POST", PODS, incomplete).await.0, 422);
    assert_eq!(bench.client.list(PODS).await.1, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_waits_for_open_requests_and_not_for_silent_clients() {
    let (client, network) = network();
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let server = start_until(network, Options::default(), async move {
        stopped.notified().await;
    })
    .unwrap();
    let (mut silent, io) = tokio::io::duplex(1 << 10);
    client.0.send(io).await.unwrap();
    let mut watch = client.watch(&format!("{PODS}?watch=1")).await;
    stop.notify_one();
    server.ended().await;
    assert!(watch.event().await.is_none(), "the watch ends in order");
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
}
