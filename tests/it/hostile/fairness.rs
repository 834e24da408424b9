//! A greedy client that takes as many connections, watches and forwarded requests as it can get; other clients still get their share.

use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::StatusCode;
use tokio::net::{TcpSocket, TcpStream};

use crate::hostile::stage::{Stage, until};
use crate::hostile::wire::{self, code, read_until, send};

/// Clients are told apart by their address. All of 127.0.0.0/8 are addresses of this machine.
const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// The limit for all clients together.
const LIMIT: usize = 50;
/// The share of [`LIMIT`] that one client gets while there is no other.
const SHARE: usize = 40;
const ONE_NODE: &str = "/api/v1/nodes/nobody";
const FORWARDED_WATCH: &str = "/api/v1/nodes?watch=1";

pub(crate) async fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    socket.connect(to).await.unwrap()
}

/// Sends a GET request from the greedy client's address; returns the connection and the status code.
async fn send_greedy(stage: &Stage, target: &str) -> (TcpStream, u16) {
    send_greedy_with(stage, target, "").await
}

/// Like [`send_greedy`] with further headers, each ended by CRLF.
async fn send_greedy_with(stage: &Stage, target: &str, headers: &str) -> (TcpStream, u16) {
    let mut stream = connect(GREEDY, stage.address).await;
    let code = wire::send_get(&mut stream, target, headers).await;
    (stream, code)
}

/// Sends `count` requests from the greedy client's address; returns the connections of those that succeeded. The others must have been
/// refused with 429.
pub(crate) async fn open_streams(stage: &Stage, target: &str, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        match send_greedy(stage, target).await {
            (stream, 200) => streams.push(stream),
            (_, code) => assert_eq!(code, 429, "{target}"),
        }
    }
    streams
}

/// The connection, unless the gateway has closed it; reads what is there.
fn still_open(stream: TcpStream) -> Option<std::net::TcpStream> {
    let mut stream = stream.into_std().unwrap();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return (error.kind() == ErrorKind::WouldBlock).then_some(stream),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_one_client_leave_others_theirs() {
    let stage = Stage::with(|settings| settings.admission.connections_max = LIMIT).await;
    let witness = stage.witness().await;
    // A newcomer from the same address may take an idle connection's place.
    let streams: Vec<_> = open_streams(&stage, "/version", LIMIT)
        .await
        .into_iter()
        .filter_map(still_open)
        .collect();
    assert!(streams.len() <= SHARE, "{}", streams.len());
    assert_eq!(stage.get("/version").await.status(), StatusCode::OK);
    // A client without connections gets one.
    let new_client = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
    let mut stream = connect(new_client, stage.address).await;
    send(&mut stream, b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = read_until(&mut stream, |read| read.contains(&b'\n')).await;
    assert_eq!(code(&String::from_utf8_lossy(&head)), 200);
    drop(streams);
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_one_client_leave_others_theirs() {
    let stage = Stage::with(|settings| settings.admission.watches_max = LIMIT).await;
    let witness = stage.witness().await;
    let watch = "/api/v1/pods?watch=1";
    let streams = open_streams(&stage, watch, LIMIT).await;
    assert!(streams.len() <= SHARE, "{}", streams.len());
    let mut other = TcpStream::connect(stage.address).await.unwrap();
    let request = format!("GET {watch} HTTP/1.1\r\nHost: a\r\n\r\n");
    send(&mut other, request.as_bytes()).await;
    let head = read_until(&mut other, |read| read.contains(&b'\n')).await;
    assert_eq!(code(&String::from_utf8_lossy(&head)), 200);
    drop(streams);
    stage.check_and_shut_down(witness).await;
}

/// Watches of Tables, which share one upstream watch, count like other watches. The embedded API server does not support them: its 406
/// shows that the gateway granted a permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_tables_share_the_places_of_watches() {
    const TABLE: &str = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
    let stage = Stage::with(|settings| settings.admission.watches_max = LIMIT).await;
    let witness = stage.witness().await;
    let list = stage.get("/api/v1/nodes").await;
    let list: serde_json::Value = serde_json::from_slice(list.body()).unwrap();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("/api/v1/nodes?watch=true&resourceVersion={from}");
    assert_eq!(send_greedy_with(&stage, &watch, TABLE).await.1, 406);
    let streams = open_streams(&stage, &watch, LIMIT).await;
    assert!(streams.len() <= SHARE, "{}", streams.len());
    assert_eq!(send_greedy_with(&stage, &watch, TABLE).await.1, 429);
    drop(streams);
    until("permits are released", async || {
        send_greedy_with(&stage, &watch, TABLE).await.1 == 406
    })
    .await;
    stage.check_and_shut_down(witness).await;
}

/// A stage that forwards requests for nodes, with low limits for forwarded requests.
async fn forwarding_stage() -> Stage {
    Stage::with(|settings| {
        settings.cached.denied = vec!["nodes".parse().unwrap()];
        settings.forwards.watches_max = LIMIT;
        settings.forwards.requests_max = LIMIT;
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_watches_of_one_client_leave_others_theirs_and_short_requests_all() {
    let stage = forwarding_stage().await;
    let witness = stage.witness().await;
    let streams = open_streams(&stage, FORWARDED_WATCH, 2 * LIMIT).await;
    assert_eq!(streams.len(), SHARE);
    // Short requests have a limit of their own, so the greedy client can still send them.
    let (_, code_of_read) = send_greedy(&stage, ONE_NODE).await;
    assert_eq!(code_of_read, 404);
    assert_eq!(stage.get(ONE_NODE).await.status(), StatusCode::NOT_FOUND);
    stage.create("/api/v1/nodes", "written-meanwhile").await;
    let mut other = TcpStream::connect(stage.address).await.unwrap();
    let request = format!("GET {FORWARDED_WATCH} HTTP/1.1\r\nHost: a\r\n\r\n");
    send(&mut other, request.as_bytes()).await;
    let events = read_until(&mut other, |read| {
        read.windows(7).any(|part| part == b"written")
    })
    .await;
    assert_eq!(code(&String::from_utf8_lossy(&events)), 200);
    let errors = "kube_fanout_passthrough_errors_total";
    let refused = stage.metric(errors, &["saturated"]).await;
    assert!(refused >= (2 * LIMIT - SHARE) as f64, "{refused}");
    drop(streams);
    until("permits are released", async || {
        send_greedy(&stage, FORWARDED_WATCH).await.1 == 200
    })
    .await;
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_bodies_that_never_end_leave_others_their_places() {
    let stage = forwarding_stage().await;
    let witness = stage.witness().await;
    let active = "kube_fanout_passthrough_requests_active";
    let mut slow = Vec::new();
    for _ in 0..2 * LIMIT {
        let mut stream = connect(GREEDY, stage.address).await;
        let head = "POST /api/v1/nodes HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{";
        send(&mut stream, head.as_bytes()).await;
        slow.push(stream);
    }
    stage.metric_reaches(active, &[], SHARE as f64).await;
    assert_eq!(stage.get(ONE_NODE).await.status(), StatusCode::NOT_FOUND);
    drop(slow);
    until("permits are released", async || {
        send_greedy(&stage, ONE_NODE).await.1 == 404
    })
    .await;
    stage.check_and_shut_down(witness).await;
}
