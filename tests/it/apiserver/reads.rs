//! Lists and watches over sockets: clients receive the store's changes, and invalid requests are refused.

use std::time::Duration;

use http::StatusCode;
use kube_fanout::apiserver::{Options, start_until};
use kube_fanout::shutdown::Drain;
use serde_json::json;
use tokio::net::TcpListener;

use super::stream::Next;
use super::{Bench, PODS, value};

#[tokio::test]
async fn a_watch_goes_on_where_its_list_ended() {
    let bench = Bench::plain().await;
    bench.put_pod("a", "1").await;
    let list = value(&bench.get("/api/v1/pods").await);
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = bench
        .watch(&format!("/api/v1/pods?watch=1&resourceVersion={version}"))
        .await;
    bench.put_pod("b", "1").await;
    bench.put_pod("a", "2").await;
    bench.send("DELETE", &format!("{PODS}/b"), "", "").await;
    for expected in ["ADDED b 3", "MODIFIED a 4", "DELETED b 5"] {
        assert_eq!(watch.event_text().await, expected);
    }
}

#[tokio::test]
async fn objects_enter_and_leave_a_selector() {
    let bench = Bench::plain().await;
    let mut watch = bench
        .watch("/api/v1/pods?watch=1&labelSelector=n%3D1&resourceVersion=1")
        .await;
    for n in ["0", "1", "2"] {
        bench.put_pod("a", n).await;
    }
    assert_eq!(watch.event_text().await, "ADDED a 3");
    assert_eq!(watch.event_text().await, "DELETED a 4");
}

#[tokio::test]
async fn a_streamed_list_is_closed_by_its_bookmark() {
    let objects = vec!["pods=30".parse().unwrap()];
    let bench = Bench::new(Options {
        objects,
        ..Options::default()
    })
    .await;
    let target = "/api/v1/pods?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = bench.watch(target).await;
    for _ in 0..30 {
        assert!(watch.event_text().await.starts_with("ADDED pod-"));
    }
    let (kind, object) = watch.event().await;
    assert_eq!(
        (kind.as_str(), &object["kind"]),
        ("BOOKMARK", &"Pod".into())
    );
    let metadata = &object["metadata"];
    assert_eq!(metadata["resourceVersion"], "31");
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn an_idle_kind_is_at_the_global_revision() {
    let bench = Bench::plain().await;
    bench.put_pod("a", "1").await;
    let nodes = value(&bench.get("/api/v1/nodes").await);
    assert_eq!(nodes["metadata"]["resourceVersion"], "2");
    let not_older = bench.get("/api/v1/nodes?resourceVersion=2").await;
    assert_eq!(not_older.status(), StatusCode::OK);
}

#[tokio::test]
async fn plain_json_is_spoken_to_who_takes_it() {
    let bench = Bench::plain().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    for (accept, code) in [(table, 200), ("application/vnd.kubernetes.protobuf", 406)] {
        let request = http::Request::builder()
            .uri(format!(
                "http://{}/api/v1/pods?pretty=true",
                bench.server.address()
            ))
            .header("Accept", accept)
            .body(http_body_util::Full::default())
            .unwrap();
        let response = bench.client.request(request).await.unwrap();
        assert_eq!(response.status(), code, "{accept}");
        assert_eq!(response.headers()["content-type"], "application/json");
    }
}

#[tokio::test]
async fn invalid_parameters_are_refused() {
    let bench = Bench::plain().await;
    for (query, code) in [
        ("limit=x", 400),
        ("labelSelector===", 400),
        ("fieldSelector=spec.nope%3Dx", 400),
        ("resourceVersion=x", 400),
        ("continue=x", 400),
        ("resourceVersionMatch=Exact", 422),
    ] {
        let response = bench.get(&format!("{PODS}?{query}")).await;
        assert_eq!(response.status().as_u16(), code, "{query}");
        assert_eq!(value(&response)["code"], code, "{query}");
    }
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let bench = Bench::plain().await;
    for (name, n) in [("a", "1"), ("b", "2"), ("c", "1")] {
        bench.put_pod(name, n).await;
    }
    let target = format!("{PODS}?labelSelector=n%3D1&fieldSelector=metadata.name!%3Dc");
    let gone = value(&bench.send("DELETE", &target, "", "").await);
    assert_eq!(gone["items"].as_array().unwrap().len(), 1);
    let left = value(&bench.get(PODS).await);
    let names: Vec<_> = left["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, [json!("b"), json!("c")]);
    let bad = bench
        .send(
            "DELETE",
            &format!("{PODS}?fieldSelector=spec.nope%3Dx"),
            "",
            "",
        )
        .await;
    assert_eq!(bad.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn churn_begins_and_ends_when_told() {
    let objects = vec!["pods=10".parse().unwrap()];
    let bench = Bench::new(Options {
        objects,
        seed: Some(7),
        ..Options::default()
    })
    .await;
    let mut watch = bench.watch("/api/v1/pods?watch=1&resourceVersion=11").await;
    assert_eq!(bench.server.watch_count(), 1);
    bench.server.set_churn(200);
    for version in 12..40 {
        let event = watch.event_text().await;
        assert!(event.ends_with(&format!(" {version}")), "{event}");
    }
    bench.server.set_churn(0);
}

#[tokio::test]
async fn a_drain_ends_watches_between_events() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let drain = Drain::with_timeout(Duration::from_secs(10));
    let mut bench = Bench::plain().await;
    bench.server = start_until(listener, Options::default(), drain.clone()).unwrap();
    let mut watch = bench.watch("/api/v1/pods?watch=1&resourceVersion=1").await;
    bench.put_pod("a", "1").await;
    assert_eq!(watch.event_text().await, "ADDED a 2");
    drain.begin();
    assert_eq!(watch.next().await, Next::End(0));
    let Bench { server, client } = bench;
    drop(client);
    server.ended().await;
}
