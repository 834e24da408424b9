//! Metadata-only reads (PartialObjectMetadata): the gateway cuts the objects that it holds as the API server does, byte for byte.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Options};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::support::PATIENCE;
use crate::support::client::{HttpVersion, connect_and_get_as, send};
use crate::support::gateway::Running;

const PODS: &str = "/api/v1/namespaces/ns-00/pods";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const INITIAL: &str =
    "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

/// The response to a GET, of a watch up to the marker after its initial events.
async fn read(server: SocketAddr, target: &str, accept: &str) -> String {
    let response = connect_and_get_as(HttpVersion::One, server, target, accept);
    let response = response.await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{target} {accept}");
    let mut body = response.into_body();
    let mut read = Vec::new();
    let reading = async {
        while let Some(frame) = body.frame().await {
            read.extend(frame.unwrap().into_data().unwrap());
            let is_marked = memchr::memmem::find(&read, b"k8s.io/initial-events-end").is_some();
            if is_marked && read.ends_with(b"\n") {
                break;
            }
        }
    };
    timeout(PATIENCE, reading).await.unwrap();
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn metadata_is_cut_as_the_api_server_cuts_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        extra_kinds: vec!["widgets.v1.example.com=Widget".parse().unwrap()],
        objects: vec!["pods=200".parse().unwrap()],
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    let gateway = Running::start(ServeSettings::embedded(upstream), Drain::new()).await;
    for name in ["a", "b", "c"] {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"b": 1, "a": [{}]}, "metadata": {
            "name": name, "labels": {"z": "1", "a": "2"}, "annotations": {"x": "<&>"}, "finalizers": ["a/b"],
            "ownerReferences": [{"uid": "u", "name": "n", "kind": "Node", "apiVersion": "v1", "controller": true}]}});
        let request = Request::post(WIDGETS)
            .header("host", "gateway")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(widget.to_string())))
            .unwrap();
        let response = send(gateway.address, request).await;
        assert_eq!(response.status(), StatusCode::CREATED);
    }
    for (collection, name) in [(PODS, "pod-000000"), (WIDGETS, "b")] {
        // From this list on, the collection is cached.
        read(gateway.address, collection, "application/json").await;
        for (target, accept) in [
            (collection.to_owned(), LIST),
            (format!("{collection}?limit=2"), LIST),
            (format!("{collection}/{name}"), OBJECT),
            (format!("{collection}?{INITIAL}"), OBJECT),
        ] {
            let direct = read(apiserver.address(), &target, accept).await;
            let served = read(gateway.address, &target, accept).await;
            assert_eq!(served, direct, "{target}");
        }
    }
    gateway.ended().await;
}
