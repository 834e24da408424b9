//! `off` where the API server refuses a step, or a piece is missing: no client is led to nothing, and what is left to do is named.

use std::net::SocketAddr;

use http::Response;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Cluster, NOTED, OFF, PODS, SERVERS, SERVICE, SETTINGS, SLICES, command, lines};
use crate::support::http_server::{HttpServer, Upstream, whole};

const GATEWAY: &str = "/api/v1/namespaces/kube-fanout/pods/g-1";
const SERVERS_SLICE: &str =
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
const ALL: &[&str] = &["g-1", "g-2", "p"];

/// A server before the cluster's that answers requests with this method and path with this status.
async fn refusing(
    cluster: &Cluster,
    method: &'static str,
    path: &'static str,
    code: u16,
) -> HttpServer {
    let upstream = Upstream::new(cluster.0.address());
    HttpServer::start(move |request| {
        let upstream = upstream.clone();
        let is_refused = request.method() == method && request.uri().path() == path;
        async move {
            if is_refused {
                let status = json!({"kind": "Status", "code": code, "message": "not you"});
                let body = whole(status.to_string());
                return Response::builder().status(code).body(body).unwrap();
            }
            upstream.forward(request).await.map(|body| body.boxed())
        }
    })
    .await
}

/// What a refused step leaves of `off`.
struct Left {
    percent: Value,
    is_off: bool,
    pods: &'static [&'static str],
}

async fn off(upstream: SocketAddr) -> (Option<i32>, Vec<String>) {
    let output = command(upstream, &["off"]).output().await.unwrap();
    (output.status.code(), lines(&output))
}

#[track_caller]
fn assert_said(lines: &[String], expected: &[&str]) {
    for text in expected {
        let is_there = lines.iter().any(|line| line.contains(text));
        assert!(is_there, "{text}: {lines:?}");
    }
}

async fn check(cluster: &Cluster, left: &Left) {
    assert_eq!(cluster.at(SETTINGS, "/data/percent").await, left.percent);
    let is_off = cluster.at(SERVICE, OFF).await == "true";
    assert_eq!(is_off, left.is_off);
    assert_eq!(cluster.names(PODS).await, left.pods);
}

/// Refuses a request of `off` with 403; checks what is said and what is left.
async fn check_refused(method: &'static str, path: &'static str, said: &[&str], left: Left) {
    let cluster = Cluster::new().await;
    let front = refusing(&cluster, method, path, 403).await;
    let (code, lines) = off(front.address).await;
    assert_eq!(code, Some(1), "{method} {path}: {lines:?}");
    let refusal = format!("{method} {path}: 403: not you");
    assert_said(&lines, &[&refusal]);
    assert_said(&lines, said);
    check(&cluster, &left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn off_does_what_it_can_when_steps_are_refused() {
    let stays = ["Service and gateways stay as they are"];
    let nothing_left = Left {
        percent: Value::Null,
        is_off: true,
        pods: &["p"],
    };
    check_refused("PATCH", SETTINGS, &["leads new connections"], nothing_left).await;
    for (method, path) in [("GET", SERVICE), ("GET", SERVERS_SLICE), ("POST", SLICES)] {
        let untouched = Left {
            percent: "0".into(),
            is_off: false,
            pods: ALL,
        };
        check_refused(method, path, &stays, untouched).await;
    }
    let open = ["connections to gateways stay open"];
    let led_back = Left {
        percent: "0".into(),
        is_off: false,
        pods: ALL,
    };
    check_refused("PATCH", SERVICE, &open, led_back).await;
    let unlisted = Left {
        percent: "0".into(),
        is_off: true,
        pods: ALL,
    };
    check_refused("GET", PODS, &["leads new connections"], unlisted).await;
    let one_stays = Left {
        percent: "0".into(),
        is_off: true,
        pods: &["g-1", "p"],
    };
    let other = ["gateway g-2 ends its connections"];
    check_refused("DELETE", GATEWAY, &other, one_stays).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn off_repeated_ends_the_gateways_that_are_left_and_not_their_replacements() {
    let cluster = Cluster::new().await;
    let front = refusing(&cluster, "DELETE", GATEWAY, 403).await;
    let (code, lines) = off(front.address).await;
    assert_eq!(code, Some(1), "{lines:?}");
    cluster.create_pod("g-3", "gateway").await;
    cluster.done(&["off"]).await;
    assert_eq!(cluster.names(PODS).await, ["g-3", "p"]);

    // Nothing was ended, so there are no replacements.
    let cluster = Cluster::new().await;
    let front = refusing(&cluster, "GET", PODS, 403).await;
    let (code, lines) = off(front.address).await;
    assert_eq!(code, Some(1), "{lines:?}");
    cluster.done(&["off"]).await;
    assert_eq!(cluster.names(PODS).await, ["p"]);

    // Gateways that came after `on` are no replacements.
    cluster.done(&["on"]).await;
    cluster.create_pod("g-4", "gateway").await;
    cluster.done(&["off"]).await;
    assert_eq!(cluster.names(PODS).await, ["p"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_gone_already_is_no_failure_of_off() {
    let cluster = Cluster::new().await;
    let front = refusing(&cluster, "DELETE", GATEWAY, 404).await;
    let (code, lines) = off(front.address).await;
    assert_eq!(code, Some(0), "{lines:?}");
    assert_said(&lines, &["gateway g-1 ends its connections"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn off_changes_nothing_else() {
    let cluster = Cluster::new().await;
    let data = json!({"ip": "10.96.0.77", "ca.crt": "both", "percent": "5"});
    cluster.patch(SETTINGS, json!({"data": data})).await;
    let annotations = json!({"metadata": {"annotations": {"team": "a"}}});
    cluster.patch(SERVICE, annotations).await;
    let mut service = cluster.get(SERVICE).await;
    let slices = cluster.get(&format!("{SLICES}/kube-fanout-api-x")).await;
    let servers = cluster.get(SERVERS).await["items"].take();

    cluster.done(&["off"]).await;
    let mut now = cluster.get(SERVICE).await;
    for of in [&mut service, &mut now] {
        let metadata = of["metadata"].as_object_mut().unwrap();
        for counted in ["resourceVersion", "generation", "managedFields"] {
            metadata.remove(counted);
        }
    }
    let noted = cluster.at(SERVICE, NOTED).await;
    service["spec"]["selector"]["kube-fanout.io/off"] = "true".into();
    service["metadata"]["annotations"]["kube-fanout.io/off-gateways"] = noted;
    assert_eq!(now, service);
    let data = json!({"ip": "10.96.0.77", "ca.crt": "both", "percent": "0"});
    assert_eq!(cluster.at(SETTINGS, "/data").await, data);
    let gateways = cluster.get(&format!("{SLICES}/kube-fanout-api-x")).await;
    assert_eq!(gateways, slices);
    assert_eq!(cluster.get(SERVERS).await["items"], servers);
}

#[tokio::test(flavor = "multi_thread")]
async fn off_ends_no_pods_of_a_service_that_selects_none() {
    let cluster = Cluster::new().await;
    cluster
        .patch(SERVICE, json!({"spec": {"selector": null}}))
        .await;
    let lines = cluster.failed(&["off"]).await;
    assert_said(&lines, &["Service kube-fanout-api selects no pods"]);
    assert_eq!(cluster.names(PODS).await, ALL);
}

#[tokio::test(flavor = "multi_thread")]
async fn off_without_an_api_server_names_what_it_could_not_do() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = nobody.local_addr().unwrap();
    drop(nobody);
    let (code, lines) = off(gone).await;
    assert_eq!(code, Some(1), "{lines:?}");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("failed: ")));
}
