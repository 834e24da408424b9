//! Gateways that clients do not reach, that are none, or whose answers differ from the API server's.

use kube_fanout::check::{CheckLevel, CheckReport, check_once};
use kube_fanout::cli::CheckCategory;
use kube_fanout::config::ClientSettings;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::front::{Front, Reply};
use super::stage::{self, Authority, client, ended, settings};
use crate::support::client::{text, version_of};

use CheckLevel::{Failure, Warning};

/// The report on a gateway that is reached like this.
async fn report(upstream: std::net::SocketAddr, gateway: ClientSettings) -> CheckReport {
    let mut settings = settings(upstream);
    settings.gateway = Some(gateway);
    check_once(&settings).await
}

/// No way to the gateway, or a bad one.
pub(crate) async fn ways() -> Vec<&'static str> {
    let apiserver = stage::apiserver().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let closed = report(apiserver.address(), client("http", address)).await;
    ended(
        &closed,
        "live-watch",
        CheckLevel::Skipped,
        "not both connected",
    );

    let (authority, other) = (Authority::new("gateway"), Authority::new("gateway-other"));
    let pair = authority.sign("server", -100..3);
    let tls = pair.tls(&["http/1.1"]);
    let front = Front::with_tls(Some(apiserver.address()), Vec::new(), tls).await;
    let trusting = |authority: &Authority| ClientSettings {
        ca_file: Some(authority.ca_file()),
        ..client("https", front.address)
    };
    let untrusted = report(apiserver.address(), trusting(&other)).await;
    let named = ClientSettings {
        server_name: Some("fanout.example.com".to_owned()),
        ..trusting(&authority)
    };
    let named = report(apiserver.address(), named).await;
    ended(&named, "gateway-ready", Failure, "not valid for name");
    let poor = report(apiserver.address(), trusting(&authority)).await;
    ended(&poor, "gateway-ready", Warning, "HTTP/1.1");
    vec![
        ended(&closed, "gateway-ready", Failure, "cannot connect to"),
        ended(&untrusted, "gateway-ready", Failure, "UnknownIssuer"),
        ended(&poor, "gateway-ready", Warning, "expires in"),
    ]
}

/// What answers is no gateway, is in front of another cluster, or has other objects.
pub(crate) async fn answers() -> Vec<&'static str> {
    let apiserver = stage::apiserver().await;
    let upstream = apiserver.address();
    let unready = Front::new(Some(upstream), vec![Reply::new("/readyz", 503, "{}")]).await;
    let unready = report(upstream, client("http", unready.address)).await;
    // The API server itself serves no handovers.
    let none = report(upstream, client("http", upstream)).await;

    let gateway = stage::gateway(upstream).await;
    let collection = "/api/v1/namespaces";
    let namespaces: Value = serde_json::from_str(&text(upstream, collection).await).unwrap();
    let mut items = namespaces["items"].as_array().unwrap().clone();
    let lost = items.pop().unwrap();
    items[0]["metadata"]["resourceVersion"] = "1".into();
    let wrong = json!({
        "metadata": {"resourceVersion": version_of(&namespaces).to_string()}, "items": items,
    });
    let error = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"metadata":{}}}"#;
    let other = r#"{"metadata":{"name":"kube-system","uid":"another"}}"#;
    let replies = vec![
        Reply::new("namespaces/kube-system", 200, other),
        Reply::new("watch=1", 200, format!("{error}\n")),
        Reply::new("resourceVersionMatch=NotOlderThan", 200, wrong.to_string()),
        Reply::new(
            "namespaces?limit=1",
            200,
            r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#,
        ),
    ];
    let front = Front::new(Some(gateway.address), replies).await;
    let differing = report(upstream, client("http", front.address)).await;
    let lost = lost["metadata"]["name"].as_str().unwrap();
    ended(
        &differing,
        "live-list",
        Failure,
        &format!("{lost}: missing at the gateway"),
    );
    gateway.ended().await;
    vec![
        ended(
            &unready,
            "gateway-ready",
            Failure,
            "/readyz is answered 503",
        ),
        ended(
            &none,
            "gateway-identity",
            Failure,
            "does not answer as a gateway does",
        ),
        ended(&differing, "gateway-cluster", Failure, "cluster another"),
        ended(&differing, "live-list", Failure, "2 differences among"),
        ended(&differing, "live-watch", Failure, "the watch sent an error"),
        ended(&differing, "live-fresh", Failure, "lists version 1 after"),
    ]
}

/// A gateway with hundreds of caches has many lines of readiness.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_gateway_is_judged_as_a_small_one() {
    let apiserver = stage::apiserver().await;
    let ready: String = (0..30).map(|n| format!("[+]r{n}.v1 ok\n")).collect();
    let ready = format!("{ready}[-]pods.v1 not ready: forbidden\nreadyz check failed\n");
    let replies = vec![Reply::new("/readyz", 503, ready)];
    let port = Front::new(None, replies).await;
    let mut settings = settings(apiserver.address());
    settings.categories = vec![CheckCategory::Admin];
    settings.admin = Some(format!("http://{}/", port.address).parse().unwrap());
    let report = check_once(&settings).await;
    ended(&report, "admin-ready", Failure, "[-]pods.v1 not ready");
}

/// A gateway that refuses for now is a gateway all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_gateway_is_not_taken_for_something_else() {
    let apiserver = stage::apiserver().await;
    let busy = vec![Reply::new("GET /kube-fanout/handover", 429, "{}")];
    let front = Front::new(Some(apiserver.address()), busy).await;
    let report = report(apiserver.address(), client("http", front.address)).await;
    ended(&report, "gateway-identity", Failure, "is answered 429");
    let hint = "look at the gateway's log";
    assert!(report.text(false).contains(hint), "{}", report.text(false));
}

/// An admin port that is not ready, and one that is none.
pub(crate) async fn admin() -> Vec<&'static str> {
    let apiserver = stage::apiserver().await;
    let replies = vec![Reply::new(
        "/readyz",
        503,
        "[-]pods.v1: forbidden\nreadyz check failed\n",
    )];
    let port = Front::new(None, replies).await;
    let mut settings = settings(apiserver.address());
    settings.admin = Some(format!("http://{}/", port.address).parse().unwrap());
    let report = check_once(&settings).await;
    vec![ended(
        &report,
        "admin-ready",
        Failure,
        "[-]pods.v1: forbidden",
    )]
}
