//! Rules that change while answers are compared.

use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{Stage, watches_compared};
use crate::support::PATIENCE;
use crate::support::client::{CONFIGMAPS, bytes, listed, put_rules, send};

/// A watch of a client with this name.
async fn watch(stage: &Stage, agent: &str, version: u64) -> Incoming {
    let target = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
    let request = http::Request::get(target)
        .header("host", "gateway")
        .header("user-agent", agent)
        .body(Full::default());
    let response = send(stage.gateway.address, request.unwrap()).await;
    assert_eq!(response.status(), 200);
    response.into_body()
}

/// Reads until the event of this object.
async fn read_to(watch: &mut Incoming, name: &str) {
    let name = format!(r#""name":"{name}""#);
    let mut read = String::new();
    while !read.contains(&name) {
        let frame = timeout(PATIENCE, watch.frame()).await.unwrap();
        let data = frame.unwrap().unwrap().into_data().unwrap();
        read += std::str::from_utf8(&data).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_the_shadow_is_compared_no_more_and_keeps_its_watch() {
    let stage = Stage::ruled("rules: [{mode: shadow}]").await;
    bytes(stage.gateway.address, CONFIGMAPS).await;
    assert_eq!(stage.compared("LIST", 1).await, [("equal", 1)]);
    let (version, _) = listed(stage.apiserver.address()).await;
    let mut staying = watch(&stage, "staying/1.0", version).await;
    let mut leaving = watch(&stage, "leaving/1.0", version).await;
    watches_compared(&stage.gateway, 2).await;

    // The rules have a shadow all the time, also one that would compare these clients if it drew them.
    for (rules, name, compared) in [
        (
            "rules: [{agents: ['staying/*'], mode: shadow}, {percent: 0}]",
            "d",
            1,
        ),
        ("rules: [{mode: shadow, percent: 0}]", "e", 0),
    ] {
        put_rules(stage.gateway.admin, rules).await;
        watches_compared(&stage.gateway, compared).await;
        stage.create(name).await;
        read_to(&mut staying, name).await;
        read_to(&mut leaving, name).await;
        // One event of the one watch that stayed, and nothing of how comparisons ended.
        assert_eq!(stage.compared("WATCH", 1).await, [("equal", 1)]);
    }
}
