//! Gateways whose API server is a gateway: one whose address leads back to it answers 508 and says so; a tree of several works.

use std::net::SocketAddr;

use kube_fanout_testkit::apiserver::{self, Options};
use tokio::net::TcpListener;

use crate::support::auth::until;
use crate::support::client::{
    CONFIGMAPS, HttpVersion, connect_and_get, get, listed, metric_sum, text,
};
use crate::support::process::GatewayProcess;

const LOOP: &str =
    "a request to the API server came back: the address of the API server leads to this gateway";

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

/// A request of a client ends with 508, over each version of HTTP.
async fn check_refused(gateway: &GatewayProcess) {
    for http in [HttpVersion::One, HttpVersion::Two] {
        let response = connect_and_get(http, gateway.address, CONFIGMAPS).await;
        assert_eq!(response.unwrap().status(), 508);
    }
    let status: serde_json::Value =
        serde_json::from_str(&text(gateway.address, "/api/v1/nodes/a").await).unwrap();
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["reason"], "LoopDetected");
    assert_eq!(status["code"], 508);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_its_own_api_server_says_so() {
    let address = free_port().await;
    let gateway = start(address, address).await;
    gateway.logged(LOOP).await;
    check_refused(&gateway).await;
    assert_eq!(get(gateway.admin, "/readyz").await.status(), 503);
    assert_eq!(gateway.count(LOOP), 1, "the line is not repeated");
    let refused = metric_sum(
        gateway.admin,
        "kube_fanout_bad_requests_total",
        r#"reason="loop""#,
    );
    // Its own requests at the start, three of the client, and what it tries again meanwhile: no storm.
    let refused = refused.await;
    assert!((3..200).contains(&refused), "{refused} requests came back");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_in_a_circle_say_so() {
    let (first, second) = (free_port().await, free_port().await);
    let first = start(first, second).await;
    let second = start(second, first.address).await;
    for gateway in [&first, &second] {
        until("the circle is noticed", async || {
            get(gateway.address, "/api/v1/nodes/a").await.status() == 508
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
