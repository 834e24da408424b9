//! One client that takes all it can get, of everything that is bounded, and others who still find their share.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::StatusCode;
use tokio::net::{TcpSocket, TcpStream};

use crate::stage::{Stage, until};
use crate::wire::{self, code, read_until, send};

/// All of 127.0.0.0/8 are this machine.
const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const BOUND: usize = 50;
/// What one client alone gets of it.
const SHARE: usize = 40;
const ONE_NODE: &str = "/api/v1/nodes/nobody";
const FORWARDED_WATCH: &str = "/api/v1/nodes?watch=1";

pub(crate) async fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    socket.connect(to).await.unwrap()
}

/// Asks from the greedy client's address; the connection, and the code of the answer's head.
async fn ask(stage: &Stage, target: &str) -> (TcpStream, u16) {
    ask_with(stage, target, "").await
}

/// The same with more headers, each with the end of its line.
async fn ask_with(stage: &Stage, target: &str, headers: &str) -> (TcpStream, u16) {
    let mut stream = connect(GREEDY, stage.address).await;
    let code = wire::ask(&mut stream, target, headers).await;
    (stream, code)
}

/// Asks so often; those that were let in. The others must have been told 429.
pub(crate) async fn take(stage: &Stage, target: &str, count: usize) -> Vec<TcpStream> {
    let mut taken = Vec::new();
    for _ in 0..count {
        match ask(stage, target).await {
            (stream, 200) => taken.push(stream),
            (_, code) => assert_eq!(code, 429, "{target}"),
        }
    }
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_one_client_leave_others_theirs() {
    let stage = Stage::with(|settings| settings.admission.connections_max = BOUND).await;
    let witness = stage.witness().await;
    let taken = take(&stage, "/version", BOUND).await;
    assert!(taken.len() <= SHARE, "{}", taken.len());
    assert_eq!(stage.get("/version").await.status(), StatusCode::OK);
    // A connection of its own, for whoever comes new.
    let third = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
    let mut stream = connect(third, stage.address).await;
    send(&mut stream, b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = read_until(&mut stream, |read| read.contains(&b'\n')).await;
    assert_eq!(code(&String::from_utf8_lossy(&head)), 200);
    drop(taken);
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_one_client_leave_others_theirs() {
    let stage = Stage::with(|settings| settings.admission.watches_max = BOUND).await;
    let witness = stage.witness().await;
    let watch = "/api/v1/pods?watch=1";
    let taken = take(&stage, watch, BOUND).await;
    assert!(taken.len() <= SHARE, "{}", taken.len());
    let mut other = TcpStream::connect(stage.address).await.unwrap();
    let request = format!("GET {watch} HTTP/1.1\r\nHost: a\r\n\r\n");
    send(&mut other, request.as_bytes()).await;
    let head = read_until(&mut other, |read| read.contains(&b'\n')).await;
    assert_eq!(code(&String::from_utf8_lossy(&head)), 200);
    drop(taken);
    stage.end(witness).await;
}

/// Watches of Tables that share one upstream are watches like others. The embedded API server has none: 406 is its own answer, and says
/// that there was a place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_tables_share_the_places_of_watches() {
    const TABLE: &str = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
    let stage = Stage::with(|settings| settings.admission.watches_max = BOUND).await;
    let witness = stage.witness().await;
    let list = stage.get("/api/v1/nodes").await;
    let list: serde_json::Value = serde_json::from_slice(list.body()).unwrap();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("/api/v1/nodes?watch=true&resourceVersion={from}");
    assert_eq!(ask_with(&stage, &watch, TABLE).await.1, 406);
    let taken = take(&stage, &watch, BOUND).await;
    assert!(taken.len() <= SHARE, "{}", taken.len());
    assert_eq!(ask_with(&stage, &watch, TABLE).await.1, 429);
    drop(taken);
    until("places come back", async || {
        ask_with(&stage, &watch, TABLE).await.1 == 406
    })
    .await;
    stage.end(witness).await;
}

/// A stage that forwards nodes, and not much at once.
async fn forwarding() -> Stage {
    Stage::with(|settings| {
        settings.cached.denied = vec!["nodes".parse().unwrap()];
        settings.forwards.watches_max = BOUND;
        settings.forwards.requests_max = BOUND;
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_watches_of_one_client_leave_others_theirs_and_short_requests_all() {
    let stage = forwarding().await;
    let witness = stage.witness().await;
    let taken = take(&stage, FORWARDED_WATCH, 2 * BOUND).await;
    assert_eq!(taken.len(), SHARE);
    // Reads and writes have places of their own, the greedy client's too.
    let (_, code_of_read) = ask(&stage, ONE_NODE).await;
    assert_eq!(code_of_read, 404);
    assert_eq!(stage.get(ONE_NODE).await.status(), StatusCode::NOT_FOUND);
    stage.create("/api/v1/nodes", "written-meanwhile").await;
    let mut other = TcpStream::connect(stage.address).await.unwrap();
    let request = format!("GET {FORWARDED_WATCH} HTTP/1.1\r\nHost: a\r\n\r\n");
    send(&mut other, request.as_bytes()).await;
    let events = read_until(&mut other, |read| {
        read.windows(7).any(|word| word == b"written")
    })
    .await;
    assert_eq!(code(&String::from_utf8_lossy(&events)), 200);
    let errors = "kube_fanout_passthrough_errors_total";
    let refused = stage.metric(errors, &["saturated"]).await;
    assert!(refused >= (2 * BOUND - SHARE) as f64, "{refused}");
    drop(taken);
    until("places come back", async || {
        ask(&stage, FORWARDED_WATCH).await.1 == 200
    })
    .await;
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_bodies_that_never_end_leave_others_their_places() {
    let stage = forwarding().await;
    let witness = stage.witness().await;
    let active = "kube_fanout_passthrough_requests_active";
    let mut slow = Vec::new();
    for _ in 0..2 * BOUND {
        let mut stream = connect(GREEDY, stage.address).await;
        let head = "POST /api/v1/nodes HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{";
        send(&mut stream, head.as_bytes()).await;
        slow.push(stream);
    }
    stage.metric_reaches(active, &[], SHARE as f64).await;
    assert_eq!(stage.get(ONE_NODE).await.status(), StatusCode::NOT_FOUND);
    drop(slow);
    until("places come back", async || {
        ask(&stage, ONE_NODE).await.1 == 404
    })
    .await;
    stage.end(witness).await;
}
