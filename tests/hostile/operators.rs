//! Everything that clients may take is taken, and operators still see what they need to see.

use std::net::{Ipv4Addr, SocketAddr};

use kube_fanout::apiserver::faults::Fault;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::fairness::{connect, take};
use crate::stage::Stage;
use crate::wire::{self, code, read_to_end, send};

const BOUND: usize = 8;
const WATCH: &str = "/api/v1/pods?watch=1";
const FORWARDED_WATCH: &str = "/api/v1/nodes?watch=1";
/// A single object is forwarded.
const POD: &str = "/api/v1/namespaces/default/pods/nobody";

/// A stage with few places, and operators. Nodes are forwarded.
async fn crowded() -> Stage {
    Stage::with(|settings| {
        settings.operator_listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        settings.cached.denied = vec!["nodes".parse().unwrap()];
        settings.admission.watches_max = BOUND;
        settings.forwards.watches_max = BOUND;
        settings.forwards.requests_max = BOUND;
    })
    .await
}

/// Asks as an operator; the connection, and the code of the answer's head.
async fn operate(stage: &Stage, target: &str) -> (TcpStream, u16) {
    let from = Ipv4Addr::LOCALHOST.into();
    let mut stream = connect(from, stage.operators.unwrap()).await;
    let code = wire::ask(&mut stream, target, "").await;
    (stream, code)
}

/// Takes all that every address gets, until nothing is left for one that comes new.
async fn take_everything(stage: &Stage, target: &str) -> Vec<TcpStream> {
    let mut taken = take(stage, target, BOUND).await;
    for last in 3..=99 {
        let from = Ipv4Addr::new(127, 0, 0, last).into();
        let mut stream = connect(from, stage.address).await;
        match wire::ask(&mut stream, target, "").await {
            200 => taken.push(stream),
            429 => return taken,
            other => panic!("{target}: {other}"),
        }
    }
    panic!("{target}: never full");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_have_places_when_clients_have_taken_all_of_theirs() {
    let stage = crowded().await;
    let mut taken = take_everything(&stage, WATCH).await;
    taken.extend(take_everything(&stage, FORWARDED_WATCH).await);
    let mut slow = Vec::new();
    let head = "POST /api/v1/nodes HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{";
    for last in 2..=20 {
        let from = Ipv4Addr::new(127, 0, 0, last).into();
        let mut stream = connect(from, stage.address).await;
        send(&mut stream, head.as_bytes()).await;
        slow.push(stream);
    }
    let total = ["forwarded_requests", "total"];
    stage
        .metric_reaches("kube_fanout_shortages_total", &total, 1.0)
        .await;
    for target in [
        WATCH,
        FORWARDED_WATCH,
        "/api/v1/pods?resourceVersion=0",
        "/api/v1/nodes",
        "/version",
    ] {
        let (_, code) = operate(&stage, target).await;
        assert_eq!(code, 200, "{target}");
    }
    drop((taken, slow));
    stage.ended().await;
}

/// The whole answer to somebody who comes new.
async fn ask(stage: &Stage, target: &str) -> String {
    let mut stream = connect(Ipv4Addr::new(127, 0, 0, 200).into(), stage.address).await;
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    send(&mut stream, request.as_bytes()).await;
    read_to_end(&mut stream).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_serves_when_clients_have_taken_all_that_is_forwarded() {
    let stage = crowded().await;
    let witness = stage.witness().await;
    let mut taken = take_everything(&stage, FORWARDED_WATCH).await;
    // They wait upstream, each from an address of its own.
    stage.order(Fault::Delay { delay_ms: 60_000 }, "nodes", 1_000);
    for last in 2..=40 {
        let mut stream = connect(Ipv4Addr::new(127, 0, 0, last).into(), stage.address).await;
        send(
            &mut stream,
            b"GET /api/v1/nodes/nobody HTTP/1.1\r\nHost: a\r\n\r\n",
        )
        .await;
        taken.push(stream);
    }
    let total = ["forwarded_requests", "total"];
    stage
        .metric_reaches("kube_fanout_shortages_total", &total, 1.0)
        .await;
    for target in [FORWARDED_WATCH, "/api/v1/nodes/nobody", POD] {
        let answer = ask(&stage, target).await;
        assert_eq!(code(&answer), 429, "{target}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.to_lowercase().contains("\r\nretry-after: "), "{head}");
        let status: Value = serde_json::from_str(body).unwrap();
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["reason"], "TooManyRequests", "{status}");
        assert_eq!(status["code"], 429, "{status}");
    }
    let pods = ask(&stage, "/api/v1/pods").await;
    assert_eq!(code(&pods), 200, "{pods}");
    let watch = ask(&stage, &format!("{WATCH}&timeoutSeconds=1")).await;
    assert!(code(&watch) == 200 && watch.contains("ADDED"), "{watch}");
    assert_eq!(operate(&stage, POD).await.1, 404);
    drop(taken);
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_connect_when_clients_hold_all_connections() {
    let stage = Stage::with(|settings| {
        settings.operator_listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        settings.admission.connections_max = BOUND;
    })
    .await;
    let taken = take_everything(&stage, "/version").await;
    assert_eq!(operate(&stage, "/version").await.1, 200);
    drop(taken);
    stage.ended().await;
}
