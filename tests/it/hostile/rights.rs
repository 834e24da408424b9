//! A gateway that is not allowed to read some resources: it forwards requests for those, and serves the others from memory.

use std::sync::Arc;

use kube_fanout::resource::Gvr;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use kube_fanout_testkit::apiserver::{self, Options};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::hostile::stage::{Stage, status, until, upstream_uri};
use crate::support::PATIENCE;

const REFUSED: Fault = Fault::Refuse {
    code: 403,
    retry_after_seconds: 1,
};
const STATE: &str = "kube_fanout_cache_state";
const NODES: &str = "/api/v1/nodes";

/// The text of `/readyz?verbose`, which must report success.
async fn readiness_checks(stage: &Stage) -> String {
    let ready = stage.admin("/readyz?verbose").await;
    assert_eq!(ready.status(), 200);
    String::from_utf8(ready.body().to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_may_not_be_read_is_forwarded_until_it_may() {
    let stage = Stage::new().await;
    stage.order(REFUSED, "nodes", u32::MAX);
    let response = stage.get(NODES).await;
    assert_eq!(status(&response)["code"], 403);
    assert_eq!(
        response.body(),
        stage.send_to_apiserver("GET", NODES).await.body(),
        "the gateway changed the API server's response"
    );
    let forbidden = [r#"resource="nodes""#, r#"state="forbidden""#];
    assert_eq!(stage.metric(STATE, &forbidden).await, 1.0);
    let checks = readiness_checks(&stage).await;
    let line = "[+]nodes.v1 ok: forwarded: forbidden\n";
    assert!(checks.contains(line), "{checks}");

    stage.order(Fault::Clear, "nodes", 1);
    let ready = [r#"resource="nodes""#, r#"state="ready""#];
    until("the gateway notices that it may read nodes", async || {
        assert_eq!(
            stage.get(NODES).await.status(),
            200,
            "not forwarded meanwhile"
        );
        stage.metric(STATE, &ready).await == 1.0
    })
    .await;
    assert_eq!(stage.metric(STATE, &forbidden).await, 0.0);
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_lost_end_open_watches_and_forward_what_follows() {
    let stage = Stage::new().await;
    assert_eq!(stage.get(NODES).await.status(), 200);
    let uri = format!("http://{}{NODES}?watch=1", stage.address);
    let watch = stage.client.get(uri.parse().unwrap()).await.unwrap();
    stage.order(REFUSED, "nodes", u32::MAX);
    stage.order(Fault::EndWatches, "nodes", 1);
    let body = http_body_util::BodyExt::collect(watch.into_body());
    let body = tokio::time::timeout(PATIENCE, body).await;
    let text = body.unwrap().unwrap().to_bytes();
    assert!(text.ends_with(b"\n"), "the stream ends within an event");
    for target in [NODES, "/api/v1/nodes?watch=1&resourceVersion=1"] {
        assert_eq!(status(&stage.get(target).await)["code"], 403, "{target}");
    }
    assert!(
        readiness_checks(&stage)
            .await
            .contains("forwarded: forbidden")
    );
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pinned_resource_that_may_not_be_read_holds_up_readiness_until_it_may() {
    let apiserver = crate::hostile::stage::apiserver().await;
    let order = |fault| FaultOrder {
        fault,
        verb: None,
        resource: Some("nodes".to_owned()),
        count: u32::MAX,
    };
    apiserver.order(order(REFUSED)).unwrap();
    let upstream = upstream_uri("http", &apiserver.address().to_string());
    let stage = Stage::with_upstream_and(apiserver, upstream, |settings| {
        settings.pin_resources = vec![Gvr::new("", "v1", "nodes")];
    })
    .await;
    let unready = "[-]nodes.v1 not ready: forbidden\n";
    until("/readyz names the reason", async || {
        let ready = stage.admin("/readyz").await;
        assert_eq!(ready.status(), 503);
        String::from_utf8_lossy(ready.body()).contains(unready)
    })
    .await;
    stage.order(Fault::Clear, "nodes", 1);
    until("the gateway is ready", async || {
        stage.admin("/readyz").await.status() == 200
    })
    .await;

    // A right that is lost later is reported, but the gateway stays ready: all replicas would become unready together.
    stage.order(REFUSED, "nodes", u32::MAX);
    stage.order(Fault::EndWatches, "nodes", 1);
    until("the cache is given up", async || {
        readiness_checks(&stage)
            .await
            .contains("forwarded: forbidden")
    })
    .await;
    stage.shut_down().await;
}

const CLIENT_COUNT: usize = 100;
/// The number of resources that the gateway may not read.
const FORBIDDEN_COUNT: usize = 20;

fn widgets(number: usize) -> String {
    format!("/apis/example.com/v1/widgets{number}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_with_rights_for_two_resources_forwards_twenty_and_serves_two() {
    let kinds = (0..FORBIDDEN_COUNT)
        .map(|number| format!("widgets{number}.v1.example.com=Widget{number}"))
        .map(|text| text.parse().unwrap())
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["pods=50".parse().unwrap()],
        extra_kinds: kinds,
        seed: Some(1),
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let upstream = upstream_uri("http", &apiserver.address().to_string());
    let stage = Stage::with_upstream(apiserver, upstream).await;
    for number in 0..FORBIDDEN_COUNT {
        stage.order(REFUSED, &format!("widgets{number}"), u32::MAX);
    }
    assert_eq!(stage.get("/api/v1/pods").await.status(), 200);
    let witness = stage.witness().await;

    let stage = Arc::new(stage);
    let mut clients = JoinSet::new();
    for client in 0..CLIENT_COUNT {
        let stage = Arc::clone(&stage);
        clients.spawn(async move {
            let number = client % FORBIDDEN_COUNT;
            for suffix in ["", "?limit=500", "?watch=1", "?resourceVersion=0"] {
                let target = format!("{}{suffix}", widgets(number));
                let ours = stage.get(&target).await;
                let theirs = stage.send_to_apiserver("GET", &target).await;
                assert_eq!(ours.status(), 403, "{target}");
                assert_eq!(ours.body(), theirs.body(), "{target}");
                let pods = stage.get("/api/v1/pods?resourceVersion=0").await;
                assert_eq!(pods.status(), 200);
            }
        });
    }
    // One probe at a time, as the kubelet sends them.
    while !clients.is_empty() {
        assert_eq!(stage.admin("/readyz").await.status(), 200);
        if let Some(ended) = clients.try_join_next() {
            ended.unwrap();
        }
    }
    let checks = readiness_checks(&stage).await;
    let forwarded = checks.matches("forwarded: forbidden").count();
    assert_eq!(forwarded, FORBIDDEN_COUNT, "{checks}");
    let stage = Arc::into_inner(stage).unwrap();
    let ready = r#"state="ready""#;
    for resource in ["pods", "configmaps"] {
        let resource = format!("resource=\"{resource}\"");
        assert_eq!(stage.metric(STATE, &[&resource, ready]).await, 1.0);
    }
    stage.check_and_shut_down(witness).await;
}
