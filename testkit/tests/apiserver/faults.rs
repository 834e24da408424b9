//! Faults that tests order.

use super::*;

const WATCH: &str = "/api/v1/pods?watch=1&resourceVersion=1";

#[tokio::test(start_paused = true)]
async fn a_cut_watch_breaks_off_in_the_middle_of_a_line() {
    let bench = Bench::new();
    bench
        .order_json(json!({"fault": {"cutWatch": {"afterBytes": 20}}, "resource": "pods"}))
        .await;
    let mut watch = bench.client.watch(WATCH).await;
    let pod = json!({"metadata": {"name": "a"}});
    bench.client.send("POST", PODS, pod).await;
    assert!(watch.line().await.is_err());
    assert_eq!(watch.buffer.len(), 20);
    assert_eq!(bench.server.fault_counts().cut, 1);
    assert_eq!(bench.client.watch(WATCH).await.next().await, "ADDED a 2");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_line_stands_behind_the_first_event() {
    let bench = Bench::with_pods(&["a"]).await;
    bench.client.label("a", "2").await;
    for (fault, len) in [
        (json!("garbageFrame"), 24),
        (json!({"oversizedFrame": {"len": 300_000}}), 300_000),
    ] {
        bench.order_json(json!({"fault": fault})).await;
        let mut watch = bench.client.watch(WATCH).await;
        let mut lens = Vec::new();
        for _ in 0..3 {
            lens.push(watch.line().await.unwrap().unwrap().len());
        }
        assert!(lens[1..].contains(&len), "{lens:?}");
    }
    assert_eq!(bench.server.fault_counts().injected, 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_strikes_as_often_as_it_was_ordered_and_is_counted() {
    let bench = Bench::new();
    let order = json!({"fault": {"refuse": {"code": 429, "retryAfterSeconds": 7}}, "verb": "watch", "resource": "pods"});
    bench.order_json(order).await;
    assert_eq!(bench.client.get("/api/v1/pods").await.0, 200);
    let refused = bench
        .client
        .request("GET", WATCH, "application/json", Value::Null)
        .await;
    let refused = collected(refused).await;
    check_refused(&refused, 429, "storage is (re)initializing");
    assert_eq!(refused.headers()["retry-after"], "7");
    drop(bench.client.watch(WATCH).await);
    assert_eq!(bench.client.get("/debug/faults").await.1["refused"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_list_is_answered_in_the_end() {
    let bench = Bench::new();
    bench
        .order_json(json!({"fault": {"delay": {"delayMs": 20_000}}, "verb": "list"}))
        .await;
    let asked_at = Instant::now();
    assert_eq!(bench.client.get("/api/v1/pods").await.0, 200);
    assert_eq!(asked_at.elapsed().as_secs(), 20);
    assert_eq!(bench.server.fault_counts().delayed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_after_its_answer() {
    let bench = Bench::new();
    bench.order(Fault::CloseConnection);
    let response = bench
        .client
        .request("GET", "/api/v1/pods", "application/json", Value::Null)
        .await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["connection"], "close");
}

#[tokio::test(start_paused = true)]
async fn the_watches_of_a_kind_end_and_others_go_on() {
    let bench = Bench::with_pods(&["a"]).await;
    let client = &bench.client;
    let mut pods = client.watch(WATCH).await;
    let mut nodes = client
        .watch("/api/v1/nodes?watch=1&resourceVersion=1")
        .await;
    assert_eq!(pods.next().await, "ADDED a 2");
    bench
        .order_json(json!({"fault": "endWatches", "resource": "pods"}))
        .await;
    assert_eq!(pods.event().await, None);
    let node = json!({"metadata": {"name": "n"}});
    client.send("POST", "/api/v1/nodes", node).await;
    assert_eq!(nodes.next().await, "ADDED n 3");
}
