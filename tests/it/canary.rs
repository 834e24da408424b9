//! The canary: its Lease upstream, its metrics, and what becomes of both when something is in its way.

use std::time::Duration;

use http::Method;
use http_body_util::{BodyExt as _, Full};
use kube_fanout::apiserver::{self, Apiserver, Options};
use kube_fanout::config::{CacheLists, CanarySettings, ResourcePattern, ServeSettings};
use kube_fanout::shutdown::Drain;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::support::PATIENCE;
use crate::support::client::{send, text};
use crate::support::gateway::Running;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const DELIVERED: &str = r#"canary_duration_seconds_count{stage="delivery"}"#;

/// A gateway with a canary in front of an API server with Leases; resources that match `denied` are not cached.
async fn start(denied: &[&str], drain: Drain) -> (Apiserver, Running) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let apiserver = apiserver::start(listener, Options::default()).unwrap();
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    let settings = ServeSettings {
        canary: Some(CanarySettings {
            namespace: "default".to_owned(),
            interval: Duration::from_millis(50),
        }),
        cached: CacheLists {
            allowed: vec![ResourcePattern::ALL],
            denied: denied.iter().map(|text| text.parse().unwrap()).collect(),
        },
        ..ServeSettings::embedded(upstream)
    };
    let gateway = Running::start(settings, drain).await;
    (apiserver, gateway)
}

/// The value of a series; 0 if there is none.
async fn value(gateway: &Running, series: &str) -> f64 {
    let page = text(gateway.admin, "/metrics").await;
    let start = format!("kube_fanout_{series} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&start));
    value.map_or(0.0, |value| value.parse().unwrap())
}

/// Waits until a series has at least this value.
async fn reaches(gateway: &Running, series: &str, least: f64) {
    let reached = async {
        while value(gateway, series).await < least {
            tokio::task::yield_now().await;
        }
    };
    let in_time = timeout(PATIENCE, reached).await.is_ok();
    assert!(in_time, "{}", text(gateway.admin, "/metrics").await);
}

async fn failures(gateway: &Running) -> Vec<String> {
    let page = text(gateway.admin, "/metrics").await;
    let lines = page.lines();
    let failed = lines.filter(|line| line.starts_with("kube_fanout_canary_failures_total{"));
    let failed = failed.filter(|line| !line.ends_with(" 0"));
    failed.map(str::to_owned).collect()
}

/// The Leases upstream.
async fn leases(apiserver: &Apiserver) -> Vec<Value> {
    let list = text(apiserver.address(), LEASES).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    list["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_write_comes_back_through_a_watch_and_its_lease_goes_with_the_gateway() {
    let (apiserver, gateway) = start(&[], Drain::new()).await;
    reaches(&gateway, DELIVERED, 3.0).await;
    let page = text(gateway.admin, "/metrics").await;
    let count = |stage: &str| {
        let start = format!("kube_fanout_canary_duration_seconds_count{{stage=\"{stage}\"}} ");
        let found = page.lines().find_map(|line| line.strip_prefix(&start));
        found.unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(count("write"), count("delivery"), "{page}");
    assert_eq!(count("arrival"), count("delivery"), "{page}");
    assert_eq!(failures(&gateway).await, [""; 0]);
    assert!(value(&gateway, "canary_last_success_timestamp_seconds").await > 1e9);
    // It is no client, and its Lease is one object that is written again and again.
    let watching = r#"longrunning_requests{encoding="json",group="coordination.k8s.io",resource="leases",verb="WATCH",version="v1"}"#;
    assert_eq!(value(&gateway, watching).await, 0.0);
    let written = leases(&apiserver).await;
    assert_eq!(written.len(), 1, "{written:?}");
    let metadata = &written[0]["metadata"];
    assert!(
        metadata["name"]
            .as_str()
            .unwrap()
            .starts_with("kube-fanout-canary-")
    );
    assert_eq!(
        metadata["labels"]["app.kubernetes.io/managed-by"],
        "kube-fanout"
    );

    gateway.ended().await;
    assert_eq!(leases(&apiserver).await, [Value::Null; 0]);
}

#[tokio::test]
async fn the_lease_is_deleted_when_a_drain_begins_and_not_at_its_end() {
    let drain = Drain::with_timeout(PATIENCE * 20).with_delay(PATIENCE * 10);
    let (apiserver, gateway) = start(&[], drain).await;
    reaches(&gateway, DELIVERED, 1.0).await;
    gateway.begin_drain();
    let deleted = async {
        while !leases(&apiserver).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    assert!(timeout(PATIENCE, deleted).await.is_ok());
    // It still serves: the delay has just begun.
    let list = text(gateway.address, "/api/v1/configmaps").await;
    assert!(list.contains("ConfigMapList"), "{list}");
}

#[tokio::test]
async fn a_lease_that_somebody_else_writes_or_deletes_is_a_conflict_and_then_written_again() {
    let conflicts = r#"canary_failures_total{reason="conflict"}"#;
    let (apiserver, gateway) = start(&[], Drain::new()).await;
    for (method, count) in [(Method::PUT, 1.0), (Method::DELETE, 2.0)] {
        let delivered = value(&gateway, DELIVERED).await;
        reaches(&gateway, DELIVERED, delivered + 1.0).await;
        let mut done = false;
        while !done {
            let mut lease = leases(&apiserver).await.remove(0);
            let name = lease["metadata"]["name"].as_str().unwrap().to_owned();
            lease["spec"]["holderIdentity"] = "somebody".into();
            let body = match method {
                Method::PUT => lease.to_string(),
                _ => String::new(),
            };
            let request = http::Request::builder()
                .method(&method)
                .uri(format!("{LEASES}/{name}"))
                .header("host", "apiserver")
                .header("content-type", "application/json")
                .body(Full::from(body))
                .unwrap();
            let answer = send(apiserver.address(), request).await;
            // The canary may have written it meanwhile.
            done = answer.status().is_success();
            answer.into_body().collect().await.unwrap();
        }
        reaches(&gateway, conflicts, count).await;
    }
    let delivered = value(&gateway, DELIVERED).await;
    reaches(&gateway, DELIVERED, delivered + 1.0).await;
}

#[tokio::test]
async fn where_leases_are_not_cached_the_canary_fails_and_the_gateway_serves() {
    let (_apiserver, gateway) = start(&["leases.coordination.k8s.io"], Drain::new()).await;
    reaches(
        &gateway,
        r#"canary_failures_total{reason="not_cached"}"#,
        2.0,
    )
    .await;
    assert_eq!(
        value(&gateway, "canary_last_success_timestamp_seconds").await,
        0.0
    );
    assert_eq!(text(gateway.admin, "/readyz").await, "ok");
    let list = text(gateway.address, "/api/v1/configmaps").await;
    assert!(list.contains("ConfigMapList"), "{list}");
    gateway.ended().await;
}
