//! Gateways whose API server is a gateway: one whose address leads back to it answers 508 and says so; a tree of several works. Workloads
//! behind the API server see nothing of it, and their 508 is none of the gateway's.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use kube_fanout_testkit::apiserver::{self, Options};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::support::auth::until;
use crate::support::client::{
    CONFIGMAPS, HttpVersion, connect_and_get, get, listed, metric_sum, send, text,
};
use crate::support::http_server::{HttpServer, Upstream, whole};
use crate::support::process::GatewayProcess;

const LOOP: &str =
    "a request to the API server came back: the address of the API server leads to this gateway";

/// A workload behind the API server.
const WORKLOAD: &str = "/api/v1/namespaces/default/services/web/proxy/page";

/// A port that is free now, for a gateway that must know it before it starts.
async fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

async fn start(listen: SocketAddr, upstream: SocketAddr) -> GatewayProcess {
    let flags = [
        format!("--listen={listen}"),
        format!("--upstream=http://{upstream}"),
    ];
    GatewayProcess::start(&flags).await
}

/// Requests that were refused because they had come back.
async fn came_back(gateway: &GatewayProcess) -> usize {
    let reason = r#"reason="loop""#;
    metric_sum(gateway.admin, "kube_fanout_bad_requests_total", reason).await
}

/// A request of a client ends with 508, over each version of HTTP.
async fn check_refused(gateway: &GatewayProcess) {
    for http in [HttpVersion::One, HttpVersion::Two] {
        let response = connect_and_get(http, gateway.address, CONFIGMAPS).await;
        assert_eq!(response.unwrap().status(), 508);
    }
    for target in ["/api/v1/nodes/a", WORKLOAD] {
        let status: serde_json::Value =
            serde_json::from_str(&text(gateway.address, target).await).unwrap();
        assert_eq!(status["kind"], "Status", "{target}: {status}");
        assert_eq!(status["reason"], "LoopDetected");
        assert_eq!(status["code"], 508);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_its_own_api_server_says_so() {
    let address = free_port().await;
    let gateway = start(address, address).await;
    gateway.logged(LOOP).await;
    check_refused(&gateway).await;
    assert_eq!(get(gateway.admin, "/readyz").await.status(), 503);
    assert_eq!(gateway.count(LOOP), 1, "the line is not repeated");
    // Its own requests at the start, four of the client, and what it tries again meanwhile: no storm.
    let refused = came_back(&gateway).await;
    assert!((4..200).contains(&refused), "{refused} requests came back");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_in_a_circle_say_so() {
    let (first, second) = (free_port().await, free_port().await);
    let first = start(first, second).await;
    let second = start(second, first.address).await;
    for gateway in [&first, &second] {
        // Its own requests have come back: no client has sent any.
        until("the circle is noticed", async || {
            came_back(gateway).await > 0
        })
        .await;
    }
    for gateway in [&first, &second] {
        until("it is in no doubt about the circle", async || {
            get(gateway.address, WORKLOAD).await.status() == 508
        })
        .await;
        check_refused(gateway).await;
    }
    first.logged(LOOP).await;
    second.logged(LOOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_tiers_of_gateways_are_no_loop() {
    let options = Options {
        objects: vec!["configmaps=10".parse().unwrap()],
        ..Options::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let apiserver = apiserver::start(listener, options).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut tiers: Vec<GatewayProcess> = Vec::new();
    for _ in 0..3 {
        let upstream = tiers
            .last()
            .map_or_else(|| apiserver.address(), |tier| tier.address);
        tiers.push(start(any, upstream).await);
    }
    let last = tiers.last().unwrap();
    until("all tiers are ready", async || {
        get(last.admin, "/readyz").await.status() == 200
    })
    .await;
    assert_eq!(listed(last.address).await.1.len(), 10);
    assert_eq!(get(last.address, "/version").await.status(), 200);
    assert!(tiers.iter().all(|tier| tier.count(LOOP) == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_sees_no_gateway_and_its_508_is_no_loop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let apiserver = apiserver::start(listener, Options::default()).unwrap();
    let upstream = Upstream::new(apiserver.address());
    // The targets of requests, and whether they are marked.
    let seen = Arc::<Mutex<Vec<(String, bool)>>>::default();
    let requests = Arc::clone(&seen);
    let front = HttpServer::start(move |request| {
        let path = request.uri().path().to_owned();
        let is_marked = request.headers().contains_key("kube-fanout-hops");
        requests.lock().push((path.clone(), is_marked));
        let upstream = upstream.clone();
        async move {
            match path.contains("/web/") || path.contains("/aggregated/") {
                true => Response::builder()
                    .status(StatusCode::LOOP_DETECTED)
                    .body(whole("mine"))
                    .unwrap(),
                false => upstream.forward(request).await.map(|body| body.boxed()),
            }
        }
    })
    .await;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let gateway = start(any, front.address).await;
    until("the gateway is ready", async || {
        get(gateway.admin, "/readyz").await.status() == 200
    })
    .await;
    for (target, is_marked) in [
        (WORKLOAD, false),
        ("/api/v1/namespaces/default/pods/web/%70roxy/", false),
        ("/apis/aggregated/v1/things/a", true),
    ] {
        // What a client sends itself is not passed on, either.
        let request = http::Request::get(target)
            .header("host", "gateway")
            .header("kube-fanout-hops", "0123456789abcdef");
        let request = request.body(http_body_util::Full::default()).unwrap();
        let response = send(gateway.address, request).await;
        assert_eq!(response.status(), 508);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "mine");
        assert_eq!(
            seen.lock().iter().find(|(path, _)| path == target),
            Some(&(target.to_owned(), is_marked))
        );
    }
    assert_eq!(get(gateway.address, "/version").await.status(), 200);
    // The lines are in order, and this is the last one.
    gateway.begin_drain();
    gateway.logged("draining").await;
    assert_eq!(gateway.count(LOOP), 0);
}
