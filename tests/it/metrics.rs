//! Requests of every kind to a gateway in front of an embedded API server, and the gateway's metrics after them.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::PathBuf;

use crate::support::PATIENCE;
use crate::support::gateway;
use bytes::Bytes;
use gateway::Running;
use http::header::{ACCEPT, CONTENT_TYPE, EXPECT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube_fanout::config::{ListenTransport, ServeSettings};
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

const CONFIGMAPS: &str = "/api/v1/configmaps";
const OBJECTS: usize = 40;

/// API server, gateway and a client.
struct Fixture {
    _apiserver: Apiserver,
    gateway: Running,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Fixture {
    async fn new() -> Self {
        Self::over(ListenTransport::PlainHttp).await
    }

    async fn over(transport: ListenTransport) -> Self {
        let options = Options {
            objects: vec![format!("configmaps={OBJECTS}").parse().unwrap()],
            object_len: 1000,
            ..Options::default()
        };
        Self::before(options, transport).await
    }

    async fn before(options: Options, transport: ListenTransport) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let apiserver = apiserver::start(listener, options).unwrap();
        let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
        let settings = ServeSettings {
            transport,
            ..ServeSettings::embedded(upstream)
        };
        Self {
            _apiserver: apiserver,
            gateway: Running::start(settings, Drain::new()).await,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    async fn send(&self, method: Method, target: &str, body: &'static str) -> Response<Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{target}", self.gateway.address))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .unwrap();
        self.client.request(request).await.unwrap()
    }

    async fn get(&self, target: &str) -> Response<Bytes> {
        whole(self.send(Method::GET, target, "").await).await
    }

    async fn page(&self) -> String {
        let uri = format!("http://{}/metrics", self.gateway.admin)
            .parse()
            .unwrap();
        let page = whole(self.client.get(uri).await.unwrap()).await;
        String::from_utf8(page.body().to_vec()).unwrap()
    }

    /// Waits until these series have these values. It must wait, because another task counts the end of a body or a connection.
    async fn expect(&self, expected: &[(&str, &str)]) {
        let mut page = String::new();
        let all_expected = async {
            loop {
                page = self.page().await;
                if expected
                    .iter()
                    .all(|(series, value)| value_of(&page, series) == Some(*value))
                {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, all_expected).await.is_ok();
        for (series, value) in expected {
            assert_eq!(value_of(&page, series), Some(*value), "{series}\n{page}");
        }
        assert!(in_time, "timed out\n{page}");
    }
}

async fn whole(response: Response<Incoming>) -> Response<Bytes> {
    let (head, body) = response.into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

/// The value of a series. `series` is `name label label …`, without the prefix `kube_fanout_` and without the resource's labels.
fn value_of<'a>(page: &'a str, series: &str) -> Option<&'a str> {
    let (name, labels) = series.split_once(' ').unwrap_or((series, ""));
    page.lines()
        .filter_map(|line| line.strip_prefix("kube_fanout_")?.rsplit_once(' '))
        .find(|(series, _)| {
            let (found, found_labels) = series.split_once('{').unwrap_or((series, ""));
            let mut expected_labels = labels.split(' ').filter(|label| !label.is_empty());
            found == name && expected_labels.all(|label| found_labels.contains(label))
        })
        .map(|(_, value)| value)
}

async fn next_line(body: &mut Incoming) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let frame = body.frame().await.unwrap().unwrap();
        line.extend_from_slice(&frame.into_data().unwrap());
    }
    String::from_utf8(line).unwrap()
}

#[tokio::test]
async fn lists_are_counted_with_their_objects_and_by_who_answers() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.get(CONFIGMAPS).await.status(), StatusCode::OK);
    let short = format!("{CONFIGMAPS}?limit=1");
    assert_eq!(fixture.get(&short).await.status(), StatusCode::OK);
    let yaml = Request::get(format!("http://{}{CONFIGMAPS}", fixture.gateway.address))
        .header(ACCEPT, "application/yaml")
        .body(Full::default())
        .unwrap();
    let forwarded = whole(fixture.client.request(yaml).await.unwrap()).await;
    assert_eq!(forwarded.status(), StatusCode::NOT_ACCEPTABLE);
    let objects = OBJECTS.to_string();
    fixture
        .expect(&[
            (r#"request_total verb="LIST" code="200""#, "2"),
            (r#"request_total verb="LIST" code="406""#, "1"),
            ("list_objects_total", &(OBJECTS + 1).to_string()),
            ("request_duration_seconds_count", "2"),
            ("passthrough_requests_total", "1"),
            ("passthrough_requests_active", "0"),
            ("cache_objects", &objects),
            ("cache_initializations_total", "1"),
            ("upstream_connected", "1"),
            ("upstream_watches_active", "1"),
            ("upstream_lists_total", "1"),
            (r#"upstream_relists_total reason="expired""#, "0"),
        ])
        .await;
}

#[tokio::test]
async fn forwarded_requests_are_counted_as_the_api_server_counts_them() {
    let fixture = Fixture::new().await;
    let created = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"new"}}"#;
    let collection = "/api/v1/namespaces/default/configmaps";
    let response = fixture.send(Method::POST, collection, created).await;
    assert_eq!(whole(response).await.status(), StatusCode::CREATED);
    fixture.get(&format!("{collection}/new")).await;
    fixture.get(&format!("{collection}/absent")).await;
    fixture.get("/api/v1/strangers").await;
    let events = "/api/v1/events?watch=1";
    let watch = fixture.send(Method::GET, events, "").await.into_body();
    let of_watch = r#"verb="WATCH" resource="events" scope="cluster""#;
    let of_get = r#"verb="GET" resource="configmaps" version="v1" scope="resource""#;
    fixture
        .expect(&[
            (r#"forwarded_request_total verb="POST" resource="configmaps" scope="resource" code="201""#, "1"),
            (&format!(r#"forwarded_request_total {of_get} code="200""#), "1"),
            (&format!(r#"forwarded_request_total {of_get} code="404""#), "1"),
            (&format!("forwarded_request_duration_seconds_count {of_get}"), "2"),
            (r#"forwarded_request_total verb="LIST" resource="other" code="404""#, "1"),
            (&format!("forwarded_longrunning_requests {of_watch}"), "1"),
            (&format!("forwarded_request_total {of_watch}"), "0"),
        ])
        .await;
    drop(watch);
    fixture
        .expect(&[
            (&format!("forwarded_longrunning_requests {of_watch}"), "0"),
            (&format!("forwarded_request_total {of_watch}"), "1"),
        ])
        .await;
}

#[tokio::test]
async fn initial_events_have_the_length_of_the_snapshot_and_no_delay() {
    let fixture = Fixture::new().await;
    let watch = format!("{CONFIGMAPS}?watch=1&resourceVersion=0");
    let mut body = fixture.send(Method::GET, &watch, "").await.into_body();
    let mut lines = String::new();
    while lines.lines().count() < OBJECTS || !lines.ends_with('\n') {
        lines += &next_line(&mut body).await;
    }
    let len = lines.len().to_string();
    fixture
        .expect(&[
            ("watch_events_total", &OBJECTS.to_string()),
            ("watch_bytes_total", &len),
            ("cache_snapshot_bytes", &len),
            ("watch_events_lag_seconds_count", "0"),
        ])
        .await;
}

#[tokio::test]
async fn a_watch_is_counted_with_its_events_their_delay_and_its_end() {
    const WRITTEN: &str =
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"new","namespace":"default"}}"#;
    let fixture = Fixture::new().await;
    let list = fixture.get(CONFIGMAPS).await;
    let list: serde_json::Value = serde_json::from_slice(list.body()).unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}");
    let mut watches = Vec::new();
    for _ in 0..2 {
        watches.push(fixture.send(Method::GET, &watch, "").await.into_body());
    }
    fixture
        .expect(&[(r#"longrunning_requests verb="WATCH""#, "2")])
        .await;
    let target = "/api/v1/namespaces/default/configmaps";
    let written = whole(fixture.send(Method::POST, target, WRITTEN).await).await;
    assert_eq!(written.status(), StatusCode::CREATED);
    let mut len = 0;
    for watch in &mut watches {
        len += next_line(watch).await.len();
    }
    fixture
        .expect(&[
            (r#"request_total verb="WATCH" code="200""#, "2"),
            ("watch_events_total", "2"),
            ("watch_bytes_total", &len.to_string()),
            ("watch_events_lag_seconds_count", "2"),
            (r#"watch_events_lag_seconds_bucket le="+Inf""#, "2"),
            ("cache_frames_encoded_total", "1"),
            ("cache_ring_events", "1"),
            ("passthrough_sent_bytes_total", &WRITTEN.len().to_string()),
            (
                "passthrough_received_bytes_total",
                &written.body().len().to_string(),
            ),
        ])
        .await;
    watches.pop();
    fixture
        .expect(&[
            (r#"longrunning_requests verb="WATCH""#, "1"),
            (r#"stream_ends_total reason="client_gone""#, "1"),
        ])
        .await;
    fixture.gateway.begin_drain();
    let rest = watches.pop().unwrap().collect().await.unwrap();
    assert_eq!(rest.to_bytes(), "");
    fixture.gateway.ended().await;
}

#[tokio::test]
async fn a_head_that_http_does_not_allow_is_counted_and_other_mistakes_are_upstreams() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.get(CONFIGMAPS).await.status(), StatusCode::OK);
    for query in [
        "limit=x",
        "labelSelector===",
        "fieldSelector=a",
        "resourceVersion=x",
        "continue=x",
        "resourceVersionMatch=Exact",
    ] {
        let response = fixture.get(&format!("{CONFIGMAPS}?{query}")).await;
        assert!(response.status().is_client_error(), "{query}: {response:?}");
    }
    let request = Request::get(format!("http://{}{CONFIGMAPS}", fixture.gateway.address))
        .header(EXPECT, "an answer")
        .body(Full::default())
        .unwrap();
    let unmet = fixture.client.request(request).await.unwrap();
    assert_eq!(unmet.status(), StatusCode::EXPECTATION_FAILED);
    fixture
        .expect(&[
            (r#"bad_requests_total reason="http""#, "1"),
            ("passthrough_requests_total", "6"),
            (r#"request_total verb="LIST" code="400""#, "3"),
            (r#"request_total verb="LIST" code="other""#, "1"),
        ])
        .await;
}

#[tokio::test]
async fn a_failed_handshake_is_counted_and_leaves_no_connection() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (cert, key) = (folder.join("metrics.crt"), folder.join("metrics.key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let fixture = Fixture::over(ListenTransport::Tls {
        cert,
        key,
        sni: Vec::new(),
    })
    .await;
    let mut stream = TcpStream::connect(fixture.gateway.address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    fixture
        .expect(&[
            (r#"connections_failed_total reason="handshake""#, "1"),
            (r#"connections_failed_total reason="accept""#, "0"),
            ("connections_accepted_total", "1"),
            ("connections", "0"),
        ])
        .await;
}

/// The page grows with each resource in use, by at most `LINES_MAX` lines per resource.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_custom_resources_have_so_many_series_each() {
    const COUNT: usize = 100;
    // For a resource with one encoding.
    const LINES_MAX: usize = 220;
    let kinds = (0..COUNT).map(|n| format!("kinds{n}.v1.example.com=Kind{n}"));
    let options = Options {
        extra_kinds: kinds.map(|kind| kind.parse().unwrap()).collect(),
        ..Options::default()
    };
    let fixture = Fixture::before(options, ListenTransport::PlainHttp).await;
    let lines = |page: &str| page.lines().count();
    let before = lines(&fixture.page().await);
    for number in 0..COUNT {
        let path = format!("/apis/example.com/v1/kinds{number}");
        assert_eq!(fixture.get(&path).await.status(), StatusCode::OK);
        // A resource that does not exist gets no series, whatever its name.
        let missing = fixture
            .get(&format!("/apis/example.com/v1/none{number}"))
            .await;
        assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    }
    let page = fixture.page().await;
    assert!(!page.contains("none1"), "{page}");
    assert!(page.contains("resource=\"kinds99\""), "{page}");
    let growth = lines(&page) - before;
    assert!(growth <= COUNT * LINES_MAX, "{growth}");
}
