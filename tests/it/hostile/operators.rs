//! Clients exhaust every limit, and the gateway still serves operators on their own port, and lists and watches from memory.

use std::net::{Ipv4Addr, SocketAddr};

use kube_fanout_testkit::apiserver::faults::Fault;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::hostile::fairness::{connect, open_streams};
use crate::hostile::stage::Stage;
use crate::hostile::wire::{self, code, read_to_end, send};

/// The limit of connections, watches and forwarded requests in these tests.
const LIMIT: usize = 8;
const WATCH: &str = "/api/v1/pods?watch=1";
const FORWARDED_WATCH: &str = "/api/v1/nodes?watch=1";
/// A single object, which is forwarded.
const POD: &str = "/api/v1/namespaces/default/pods/nobody";

/// A stage with low limits and a port for operators. Requests for nodes are forwarded.
async fn limited_stage() -> Stage {
    Stage::with(|settings| {
        settings.operator_listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        settings.cached.denied = vec!["nodes".parse().unwrap()];
        settings.admission.watches_max = LIMIT;
        settings.forwards.watches_max = LIMIT;
        settings.forwards.requests_max = LIMIT;
    })
    .await
}

/// Sends a request to the operators' port; returns the connection and the status code.
async fn send_as_operator(stage: &Stage, target: &str) -> (TcpStream, u16) {
    let from = Ipv4Addr::LOCALHOST.into();
    let mut stream = connect(from, stage.operators.unwrap()).await;
    let code = wire::send_get(&mut stream, target, "").await;
    (stream, code)
}

/// Opens streams from one address after the other, until a new address is refused.
async fn exhaust(stage: &Stage, target: &str) -> Vec<TcpStream> {
    let mut streams = open_streams(stage, target, LIMIT).await;
    for last in 3..=99 {
        let from = Ipv4Addr::new(127, 0, 0, last).into();
        let mut stream = connect(from, stage.address).await;
        match wire::send_get(&mut stream, target, "").await {
            200 => streams.push(stream),
            429 => return streams,
            other => panic!("{target}: {other}"),
        }
    }
    panic!("{target}: no limit was reached");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_have_places_when_clients_have_taken_all_of_theirs() {
    let stage = limited_stage().await;
    let mut streams = exhaust(&stage, WATCH).await;
    streams.extend(exhaust(&stage, FORWARDED_WATCH).await);
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
        let (_, code) = send_as_operator(&stage, target).await;
        assert_eq!(code, 200, "{target}");
    }
    drop((streams, slow));
    stage.shut_down().await;
}

/// Sends a request from an address that has no connections yet; returns the whole response.
async fn fetch_as_new_client(stage: &Stage, target: &str) -> String {
    let mut stream = connect(Ipv4Addr::new(127, 0, 0, 200).into(), stage.address).await;
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    send(&mut stream, request.as_bytes()).await;
    read_to_end(&mut stream).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_serves_when_clients_have_taken_all_that_is_forwarded() {
    let stage = limited_stage().await;
    let witness = stage.witness().await;
    let mut streams = exhaust(&stage, FORWARDED_WATCH).await;
    // Requests that upstream does not answer for a minute, each from an address of its own.
    stage.order(Fault::Delay { delay_ms: 60_000 }, "nodes", 1_000);
    for last in 2..=40 {
        let mut stream = connect(Ipv4Addr::new(127, 0, 0, last).into(), stage.address).await;
        send(
            &mut stream,
            b"GET /api/v1/nodes/nobody HTTP/1.1\r\nHost: a\r\n\r\n",
        )
        .await;
        streams.push(stream);
    }
    let total = ["forwarded_requests", "total"];
    stage
        .metric_reaches("kube_fanout_shortages_total", &total, 1.0)
        .await;
    for target in [FORWARDED_WATCH, "/api/v1/nodes/nobody", POD] {
        let response = fetch_as_new_client(&stage, target).await;
        assert_eq!(code(&response), 429, "{target}: {response}");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.to_lowercase().contains("\r\nretry-after: "), "{head}");
        let status: Value = serde_json::from_str(body).unwrap();
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["reason"], "TooManyRequests", "{status}");
        assert_eq!(status["code"], 429, "{status}");
    }
    let pods = fetch_as_new_client(&stage, "/api/v1/pods").await;
    assert_eq!(code(&pods), 200, "{pods}");
    let watch = fetch_as_new_client(&stage, &format!("{WATCH}&timeoutSeconds=1")).await;
    assert!(code(&watch) == 200 && watch.contains("ADDED"), "{watch}");
    assert_eq!(send_as_operator(&stage, POD).await.1, 404);
    drop(streams);
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_connect_when_clients_hold_all_connections() {
    let stage = Stage::with(|settings| {
        settings.operator_listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        settings.admission.connections_max = LIMIT;
    })
    .await;
    let streams = exhaust(&stage, "/version").await;
    assert_eq!(send_as_operator(&stage, "/version").await.1, 200);
    drop(streams);
    stage.shut_down().await;
}
