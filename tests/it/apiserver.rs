//! Tests of the embedded API server over real sockets, in plain HTTP.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod auth;
mod credentials;
mod deep;
mod faults;
mod impersonation;
mod metadata;
mod reads;
mod reviews;
mod stream;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube_fanout::apiserver::{self, Apiserver, Options};
use serde_json::{Value, json};
use stream::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server on a free port and a client for it.
struct Bench {
    server: Apiserver,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Bench {
    async fn new(options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            server: apiserver::start(listener, options).unwrap(),
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    async fn plain() -> Self {
        let extra_kinds = vec!["widgets.v1.example.com=Widget".parse().unwrap()];
        Self::new(Options {
            extra_kinds,
            ..Options::default()
        })
        .await
    }

    async fn send(
        &self,
        method: &str,
        target: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Response<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{target}", self.server.address()))
            .header(CONTENT_TYPE, content_type)
            .header("Audit-ID", "an-audit-id")
            .body(Full::new(body.into()))
            .unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        Response::from_parts(head, body.collect().await.unwrap().to_bytes())
    }

    /// Opens a watch; the response must be 200.
    async fn watch(&self, target: &str) -> Stream {
        let uri = format!("http://{}{target}", self.server.address());
        let request = Request::builder().uri(uri).body(Full::default()).unwrap();
        let response = self.client.request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{target}");
        Stream::new(response.into_body())
    }

    async fn fault(&self, order: Value) {
        let response = self.post("/debug/faults", order).await;
        assert_eq!(response.status(), StatusCode::OK, "{:?}", response.body());
    }

    /// Creates a pod, or changes its label `n`.
    async fn put_pod(&self, name: &str, n: &str) -> Value {
        let patch = json!({"metadata": {"labels": {"n": n}}}).to_string();
        let path = format!("{PODS}/{name}");
        let patched = self
            .send("PATCH", &path, "application/merge-patch+json", patch)
            .await;
        if patched.status() == StatusCode::OK {
            return value(&patched);
        }
        let pod = json!({"metadata": {"name": name, "labels": {"n": n}}});
        value(&self.post(PODS, pod).await)
    }

    async fn get(&self, target: &str) -> Response<Bytes> {
        self.send("GET", target, "", "").await
    }

    async fn post(&self, target: &str, body: Value) -> Response<Bytes> {
        self.send("POST", target, "application/json", body.to_string())
            .await
    }
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

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn an_object_is_created_read_patched_and_deleted() {
    let bench = Bench::plain().await;
    let created = bench
        .post(
            PODS,
            json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}),
        )
        .await;
    assert_eq!(created.status(), StatusCode::CREATED);
    assert_eq!(created.headers()["audit-id"], "an-audit-id");
    assert_eq!(created.headers()["cache-control"], "no-cache, private");
    assert!(created.body().ends_with(b"}\n"));

    let path = format!("{PODS}/p");
    assert_eq!(bench.get(&path).await.body(), created.body());
    let patch = r#"{"metadata":{"labels":{"a":"b"}}}"#;
    let patched = bench
        .send("PATCH", &path, "application/merge-patch+json", patch)
        .await;
    assert_eq!(value(&patched)["metadata"]["resourceVersion"], "3");
    let stale = bench
        .send("PUT", &path, "application/json", created.body().clone())
        .await;
    let message = "Operation cannot be fulfilled on pods \"p\": the object has been modified; please apply your changes to the latest version and try again";
    check_refused(&stale, 409, message);
    let deleted = bench.send("DELETE", &path, "", "").await;
    assert_eq!(
        (deleted.status(), &value(&deleted)["status"]),
        (StatusCode::OK, &"Success".into())
    );
    check_refused(&bench.get(&path).await, 404, "pods \"p\" not found");
}

#[tokio::test]
async fn what_cannot_be_written_is_refused() {
    let bench = Bench::plain().await;
    let too_long = bench
        .send("POST", PODS, "application/json", vec![b' '; (3 << 20) + 1])
        .await;
    check_refused(&too_long, 413, "Request entity too large: limit is 3145728");
    let text = bench.send("POST", PODS, "text/plain", "{}").await;
    assert_eq!(text.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let put = bench.send("PUT", PODS, "application/json", "{}").await;
    check_refused(
        &put,
        405,
        "the server does not allow this method on the requested resource",
    );
    assert_eq!(
        bench.get("/apis/nope/v1/things").await.body(),
        "404 page not found\n"
    );
}

#[tokio::test]
async fn discovery_names_what_is_served() {
    let bench = Bench::plain().await;
    let legacy = value(&bench.get("/apis/example.com/v1").await);
    assert_eq!(legacy["resources"][0]["name"], "widgets");
    let request = Request::builder()
        .uri(format!("http://{}/apis", bench.server.address()))
        .header(
            "Accept",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
        )
        .body(Full::default())
        .unwrap();
    let (head, body) = bench.client.request(request).await.unwrap().into_parts();
    assert_eq!(
        head.headers[CONTENT_TYPE],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let aggregated: Value =
        serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
    let groups = aggregated["items"].as_array().unwrap().iter();
    let groups: Vec<_> = groups.map(|group| &group["metadata"]["name"]).collect();
    assert!(groups.contains(&&json!("apps")), "{groups:?}");
    assert_eq!(bench.get("/readyz").await.body(), "ok");
}

#[tokio::test]
async fn an_ordered_refusal_strikes_once_and_is_counted() {
    let bench = Bench::plain().await;
    let order = json!({"fault": {"refuse": {"code": 429, "retryAfterSeconds": 7}}, "verb": "get", "resource": "pods"});
    assert_eq!(
        bench.post("/debug/faults", order).await.status(),
        StatusCode::OK
    );
    let refused = bench.get(&format!("{PODS}/p")).await;
    check_refused(&refused, 429, "storage is (re)initializing");
    assert_eq!(refused.headers()[RETRY_AFTER], "7");
    assert_eq!(
        bench.get(&format!("{PODS}/p")).await.status(),
        StatusCode::NOT_FOUND
    );
    assert_eq!(value(&bench.get("/debug/faults").await)["refused"], 1);
}

#[tokio::test]
async fn a_connection_is_closed_after_its_answer_when_ordered() {
    let bench = Bench::plain().await;
    bench
        .post("/debug/faults", json!({"fault": "closeConnection"}))
        .await;
    let response = bench.get(&format!("{PODS}/p")).await;
    assert_eq!(
        (response.status(), &response.headers()["connection"]),
        (StatusCode::NOT_FOUND, &"close".parse().unwrap())
    );
}

#[tokio::test]
async fn first_objects_are_there_when_it_has_started() {
    let objects = vec!["pods=50".parse().unwrap(), "configmaps=10".parse().unwrap()];
    let bench = Bench::new(Options {
        objects,
        object_len: 1000,
        ..Options::default()
    })
    .await;
    let index = bench.server.catalogue().index_of_plural("pods").unwrap();
    assert_eq!(bench.server.store().object_count(index), 50);
    let pod = bench.get("/api/v1/namespaces/ns-07/pods/pod-000007").await;
    assert!((950..1050).contains(&pod.body().len()), "{:?}", pod.body());
}

#[tokio::test]
async fn dropping_a_server_ends_its_connections() {
    let bench = Bench::plain().await;
    let mut stream = tokio::net::TcpStream::connect(bench.server.address())
        .await
        .unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        .await
        .unwrap();
    let mut response = [0; 12];
    stream.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
    drop(bench);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"\r\n\r\nok"));
}
