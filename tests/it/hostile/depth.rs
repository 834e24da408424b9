//! A custom resource nested almost as deeply as the API server accepts, listed and watched in every form that clients can request.

use std::io::Read as _;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube_fanout_testkit::apiserver::faults::Fault;
use kube_fanout_testkit::apiserver::{self, Options};
use tokio::net::TcpListener;

use crate::hostile::relay::{Relay, Script};
use crate::hostile::stage::{Stage, until, upstream_uri};
use crate::support::PATIENCE;

const WIDGETS: &str = "/apis/example.com/v1/widgets";
/// Go's JSON decoder accepts 10,000 levels.
const DEPTH: usize = 9_000;
/// The depth of the object that is requested with `pretty`: the length of its indentation grows with the square of the depth.
const LESS_DEEP: usize = 2_000;

/// An event whose object is nested to this depth twice: in `spec` and in its managed fields.
fn event(kind: &str, name: &str, version: &str, depth: usize) -> String {
    let nested = format!("{}1{}", r#"{"k":"#.repeat(depth), "}".repeat(depth));
    let metadata = format!(
        r#"{{"managedFields":[{{"fieldsType":"FieldsV1","fieldsV1":{nested},"manager":"m","operation":"Update","time":"9999-12-31T23:59:59Z"}}],"name":"{name}","namespace":"default","resourceVersion":"{version}","uid":"u-{name}"}}"#
    );
    let object = format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{metadata},"spec":{nested}}}"#
    );
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

async fn get(stage: &Stage, target: &str, headers: &[(&str, &str)]) -> Response<Bytes> {
    let mut request = Request::get(format!("http://{}{target}", stage.address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::default()).unwrap();
    let exchange = async {
        let (head, body) = stage.client.request(request).await.unwrap().into_parts();
        Response::from_parts(head, body.collect().await.unwrap().to_bytes())
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap()
}

/// The number of levels of nesting in a response.
fn levels(body: &[u8]) -> usize {
    memchr::memmem::find_iter(body, br#"{"k":"#).count()
}

/// Checks that the response in this form succeeds and has the expected number of levels.
async fn check_levels(stage: &Stage, target: &str, accept: &str, expected: usize) {
    let response = get(stage, target, &[("accept", accept)]).await;
    let found = (response.status().as_u16(), levels(response.body()));
    assert_eq!(found, (200, expected), "{target} as {accept}");
}

async fn stage() -> (Stage, Relay) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        extra_kinds: vec!["widgets.v1.example.com=Widget".parse().unwrap()],
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let relay = Relay::start(apiserver.address()).await;
    let upstream = upstream_uri("http", &relay.address.to_string());
    (Stage::with_upstream(apiserver, upstream).await, relay)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deeply_nested_object_is_listed_and_watched_in_every_form() {
    let (stage, relay) = stage().await;
    let initial = [
        event("ADDED", "deep", "1", DEPTH),
        event("ADDED", "less-deep", "1", LESS_DEEP),
    ]
    .concat();
    relay.order("widgets", Script::BeforeWatch(initial));
    let list = get(&stage, WIDGETS, &[]).await;
    let text = String::from_utf8_lossy(&list.body()[..list.body().len().min(300)]);
    assert_eq!(list.status(), 200, "{text}");
    assert_eq!(levels(list.body()), 2 * (DEPTH + LESS_DEEP), "{text}");

    let gzip = get(&stage, WIDGETS, &[("accept-encoding", "gzip")]).await;
    let mut text = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(&**gzip.body());
    decoder.read_to_end(&mut text).unwrap();
    assert!(text == **list.body(), "{} bytes", text.len());

    let metadata = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for (accept, expected) in [
        (format!("application/json;{metadata}"), DEPTH + LESS_DEEP),
        (
            format!("application/vnd.kubernetes.protobuf;{metadata}"),
            DEPTH + LESS_DEEP,
        ),
        (
            "application/json;drop=metadata.managedFields".to_owned(),
            DEPTH + LESS_DEEP,
        ),
    ] {
        check_levels(&stage, WIDGETS, &accept, expected).await;
    }

    let target = format!(
        "{WIDGETS}?pretty=true&fieldSelector=metadata.namespace=default,metadata.name=less-deep"
    );
    let pretty = get(&stage, &target, &[]).await;
    let lines = pretty.body().split(|byte| *byte == b'\n').count();
    assert!(
        pretty.status() == 200 && lines > 4 * LESS_DEEP,
        "{lines} lines"
    );

    let watch = format!(
        "{WIDGETS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    );
    let partial = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    for (accept, expected) in [
        ("application/json".to_owned(), 2 * (DEPTH + LESS_DEEP)),
        (format!("application/json;{partial}"), DEPTH + LESS_DEEP),
        (
            format!("application/vnd.kubernetes.protobuf;{partial}"),
            DEPTH + LESS_DEEP,
        ),
    ] {
        check_levels(&stage, &watch, &accept, expected).await;
    }

    // The same for an event of the gateway's own watch after the initial list.
    let later = event("ADDED", "later", "1000000", DEPTH);
    relay.order("widgets", Script::BeforeWatch(later));
    stage.order(Fault::EndWatches, "widgets", 1);
    let memory = format!("{WIDGETS}?resourceVersion=0");
    until("the later object is listed", async || {
        let list = get(&stage, &memory, &[]).await;
        list.status() == 200 && levels(list.body()) == 4 * DEPTH + 2 * LESS_DEEP
    })
    .await;
    stage.shut_down().await;
}
