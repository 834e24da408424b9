//! Faults that tests order from the embedded API server, each over a real socket.

use http::StatusCode;
use serde_json::json;

use super::stream::Next;
use super::{Bench, PODS, check_refused, value};

const WATCH: &str = "/api/v1/pods?watch=1&resourceVersion=1";

#[tokio::test]
async fn a_cut_watch_breaks_off_in_the_middle_of_a_line() {
    let bench = Bench::plain().await;
    bench
        .fault(json!({"fault": {"cutWatch": {"afterBytes": 20}}, "resource": "pods"}))
        .await;
    let mut watch = bench.watch(WATCH).await;
    bench.put_pod("a", "1").await;
    assert_eq!(watch.next().await, Next::Broken(20));
    assert_eq!(bench.server.fault_counts().cut, 1);
    assert_eq!(bench.watch(WATCH).await.event_text().await, "ADDED a 2");
}

#[tokio::test]
async fn a_foreign_line_stands_behind_the_first_event() {
    let bench = Bench::plain().await;
    bench.put_pod("a", "1").await;
    bench.put_pod("a", "2").await;
    for (fault, len) in [
        (json!("garbageFrame"), 23),
        (json!({"oversizedFrame": {"len": 300_000}}), 299_999),
    ] {
        bench.fault(json!({"fault": fault})).await;
        let mut watch = bench.watch(WATCH).await;
        let mut lens = Vec::new();
        for _ in 0..3 {
            match watch.next().await {
                Next::Line(line) => lens.push(line.len()),
                ended @ (Next::End(_) | Next::Broken(_)) => panic!("{ended:?}"),
            }
        }
        assert!(lens.contains(&len), "{lens:?}");
    }
    assert_eq!(bench.server.fault_counts().injected, 2);
}

#[tokio::test]
async fn a_watch_is_refused_and_then_answered() {
    let bench = Bench::plain().await;
    bench
        .fault(json!({"fault": {"refuse": {"code": 503}}, "verb": "watch"}))
        .await;
    assert_eq!(bench.get("/api/v1/pods").await.status(), StatusCode::OK);
    check_refused(&bench.get(WATCH).await, 503, "apiserver is shutting down");
    bench.put_pod("a", "1").await;
    assert_eq!(bench.watch(WATCH).await.event_text().await, "ADDED a 2");
}

#[tokio::test]
async fn a_delayed_list_is_answered_in_the_end() {
    let bench = Bench::plain().await;
    bench
        .fault(json!({"fault": {"delay": {"delayMs": 20}}, "verb": "list"}))
        .await;
    assert_eq!(bench.get("/api/v1/pods").await.status(), StatusCode::OK);
    assert_eq!(bench.server.fault_counts().delayed, 1);
}

#[tokio::test]
async fn watches_of_a_kind_end_when_ordered_and_others_go_on() {
    let bench = Bench::plain().await;
    let mut pods = bench.watch(WATCH).await;
    let mut nodes = bench.watch("/api/v1/nodes?watch=1&resourceVersion=1").await;
    bench.put_pod("a", "1").await;
    assert_eq!(pods.event_text().await, "ADDED a 2");
    bench
        .fault(json!({"fault": "endWatches", "resource": "pods"}))
        .await;
    assert_eq!(pods.next().await, Next::End(0));
    bench
        .post("/api/v1/nodes", json!({"metadata": {"name": "n"}}))
        .await;
    assert_eq!(nodes.event_text().await, "ADDED n 3");
}

#[tokio::test]
async fn what_was_compacted_is_too_old_everywhere() {
    let bench = Bench::plain().await;
    for name in ["a", "b", "c"] {
        bench.put_pod(name, "1").await;
    }
    let page = value(&bench.get("/api/v1/pods?limit=1").await);
    let token = page["metadata"]["continue"].as_str().unwrap();
    bench.put_pod("a", "2").await;
    bench
        .fault(json!({"fault": "compact", "resource": "pods"}))
        .await;

    let exact = "/api/v1/pods?resourceVersion=3&resourceVersionMatch=Exact";
    let message = "The resourceVersion for the provided list is too old.";
    check_refused(&bench.get(exact).await, 410, message);

    let rest = bench.get(&format!("/api/v1/pods?continue={token}")).await;
    assert_eq!(rest.status(), StatusCode::GONE);
    let go_on = value(&rest)["metadata"]["continue"].clone();
    let target = format!("/api/v1/pods?continue={}", go_on.as_str().unwrap());
    let rest = value(&bench.get(&target).await);
    assert_eq!(rest["items"].as_array().unwrap().len(), 2);

    let (kind, status) = bench.watch(WATCH).await.event().await;
    assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &410.into()));
    assert_eq!(status["message"], "too old resource version: 1 (5)");
    // A watch from the compacted version itself succeeds.
    let mut watch = bench.watch("/api/v1/pods?watch=1&resourceVersion=5").await;
    bench.send("DELETE", &format!("{PODS}/a"), "", "").await;
    assert_eq!(watch.event_text().await, "DELETED a 6");
}
