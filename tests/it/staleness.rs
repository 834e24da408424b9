//! A gateway whose API server goes away: it says how old its answers may be, and never passes an old state off as a fresh one.

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;
use http::header::WARNING;
use http_body_util::BodyExt as _;
use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Options};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use crate::support::PATIENCE;
use crate::support::client::{get, text};
use crate::support::gateway::Running;
use crate::support::process::GatewayProcess;
use crate::support::wire::Wire;

const CONFIGMAPS: &str = "/api/v1/configmaps";
const LOOK: Duration = Duration::from_millis(20);

/// Looks at an address until its text holds this.
async fn until(server: SocketAddr, target: &str, holds: impl Fn(&str) -> bool) {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        let page = text(server, target).await;
        if holds(&page) {
            return;
        }
        assert!(Instant::now() < give_up_at, "{page}");
        sleep(LOOK).await;
    }
}

#[tokio::test]
async fn a_gateway_without_its_api_server_says_how_old_its_answers_may_be() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["configmaps=5".parse().unwrap()],
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    let settings = ServeSettings {
        staleness_bound: Duration::from_secs(1),
        ..ServeSettings::embedded(upstream)
    };
    let gateway = Running::start(settings, Drain::new()).await;
    let any = format!("{CONFIGMAPS}?resourceVersion=0");
    let known = text(gateway.address, &any).await;
    let watch = format!("{CONFIGMAPS}?watch=1&resourceVersion=0");
    let mut watch = get(gateway.address, &watch).await.into_body();
    watch.frame().await.unwrap().unwrap();

    drop(apiserver);
    let readiness = "/readyz?verbose";
    let is_stale = |page: &str| page.contains("ok: stale: no proof from upstream for");
    until(gateway.admin, readiness, is_stale).await;
    assert_eq!(get(gateway.admin, "/readyz").await.status(), StatusCode::OK);

    let answer = get(gateway.address, &any).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let warning = answer.headers()[WARNING].to_str().unwrap();
    assert!(warning.starts_with("299 - \"the API server has not been heard from for "));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, known.as_bytes());

    // Another gateway would take the cache for a current one.
    let handover = "/kube-fanout/handover";
    assert_eq!(text(gateway.address, handover).await, r#"{"caches":[]}"#);
    let state = format!("{handover}/configmaps.v1.json");
    let refused = get(gateway.address, &state).await;
    assert_eq!(refused.status(), StatusCode::NOT_FOUND);

    let fresh = get(gateway.address, CONFIGMAPS).await;
    assert_eq!(fresh.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(!fresh.headers().contains_key(WARNING));

    // Watches stay open, and new ones begin.
    let later = get(
        gateway.address,
        &format!("{CONFIGMAPS}?watch=1&resourceVersion=0"),
    )
    .await;
    assert!(later.headers().contains_key(WARNING));
    let mut later = later.into_body();
    later.frame().await.unwrap().unwrap();
    for watch in [&mut watch, &mut later] {
        let ended = timeout(Duration::ZERO, watch.frame()).await;
        assert!(ended.is_err(), "{ended:?}");
    }

    let is_old = |page: &str| {
        let mut lines = page.lines();
        let line = lines.find(|line| line.starts_with("kube_fanout_cache_age_seconds{"));
        line.is_some_and(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() > 1.0)
    };
    until(gateway.admin, "/metrics", is_old).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_api_server_is_logged_once_and_so_is_its_return() {
    const LOST: &str = "the API server is lost; caches are served as they are, and watched again as soon as it is back";
    const BACK: &str = "the API server is back";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let apiserver = apiserver::start(listener, Options::default()).unwrap();
    let wire = Wire::to(apiserver.address()).await;
    let upstream = format!("--upstream=http://{}", wire.address);
    let pinned = "--pin-resources=configmaps,pods,services".to_owned();
    let gateway = GatewayProcess::start(&[upstream, pinned]).await;
    until(gateway.admin, "/readyz?verbose", |page| {
        page.contains("readyz check passed")
    })
    .await;

    wire.set_refusing(true);
    let lost = gateway.logged(LOST).await;
    assert_eq!(lost["level"], "WARN", "{lost}");
    assert!(!lost["error"].as_str().unwrap().is_empty(), "{lost}");
    // Until this line, which may take half a minute, each cache has tried again several times.
    gateway
        .logged("cannot read discovery; continuing with the last one")
        .await;
    assert_eq!(gateway.count(LOST), 1);
    assert_eq!(gateway.count(BACK), 0);

    wire.set_refusing(false);
    gateway.logged(BACK).await;
    assert_eq!(gateway.count(LOST), 1);
    gateway.kill();
}
