//! Clients of WebSocket watches that read slowly or not at all, send half a frame, or vanish.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::hostile::stage::{Stage, until};
use crate::hostile::wire::{read_until, send};

const WATCHES: &str = "kube_fanout_longrunning_requests";
const PODS_ONLY: &[&str] = &["resource=\"pods\"", "verb=\"WATCH\""];
const ALL_PODS: &str = "/api/v1/pods?watch=1";
/// A close frame with code 1000.
const CLOSE: &[u8] = &[0x88, 2, 0x03, 0xe8];
const COUNT: usize = 10;

/// Opens a watch over WebSocket; returns the connection and what was read of it: the response's head and perhaps more.
async fn open(server: SocketAddr, target: &str) -> (TcpStream, Vec<u8>) {
    let socket = TcpSocket::new_v4().unwrap();
    // A small buffer, so that a client that does not read soon stops the gateway's writes.
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(server).await.unwrap();
    let head = format!(
        "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Origin: http://a\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    send(&mut stream, head.as_bytes()).await;
    let received = read_until(&mut stream, |received| {
        received.windows(4).any(|end| end == b"\r\n\r\n")
    })
    .await;
    assert!(
        received.starts_with(b"HTTP/1.1 101 "),
        "{}",
        received.escape_ascii()
    );
    (stream, received)
}

async fn wait_for_watches(stage: &Stage, count: usize) {
    until(&format!("{count} watches are open"), async || {
        stage.metric(WATCHES, PODS_ONLY).await == count as f64
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_falls_out_of_history_and_is_told() {
    const RECEIVED: &str = "kube_fanout_upstream_events_received_total";
    const PODS: &[&str] = &["resource=\"pods\""];
    let stage = Stage::with(|settings| settings.ring.events_max = 100).await;
    let witness = stage.witness().await;
    let (mut slow, _) = open(stage.address, ALL_PODS).await;
    wait_for_watches(&stage, 1).await;
    // More events than all buffers between the gateway and the client can hold.
    for _ in 0..10 {
        let before = stage.metric(RECEIVED, PODS).await;
        stage.apiserver.set_churn(1_000);
        stage.metric_reaches(RECEIVED, PODS, before + 300.0).await;
        stage.apiserver.set_churn(0);
    }
    let whole = read_until(&mut slow, |received| received.ends_with(CLOSE)).await;
    let text = String::from_utf8_lossy(&whole);
    assert!(whole.ends_with(CLOSE));
    assert!(text.contains(r#"{"type":"ERROR""#) && text.contains("Expired"));
    stage
        .metric_reaches("kube_fanout_lagged_total", PODS, 1.0)
        .await;
    wait_for_watches(&stage, 0).await;
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_connections_are_kept_while_they_may_live_and_let_go_when_they_end() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut clients = Vec::new();
    for number in 0..COUNT {
        let (mut stream, _) = open(stage.address, ALL_PODS).await;
        // The start of a frame that never continues: a part of its header, or of a payload of 4 GiB.
        let half: &[u8] = match number % 3 {
            0 => &[0x89],
            1 => &[0x89, 0xff, 0, 0, 0],
            _ => &[0x82, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7],
        };
        send(&mut stream, half).await;
        clients.push(stream);
    }
    wait_for_watches(&stage, COUNT).await;
    for (number, mut stream) in clients.into_iter().enumerate() {
        if number % 2 == 0 {
            // With a linger time of 0, dropping the socket resets the connection.
            let socket = socket2::SockRef::from(&stream);
            socket.set_linger(Some(Duration::ZERO)).unwrap();
        } else {
            // The client ends its side and reads the rest, which ends with a close frame.
            stream.shutdown().await.unwrap();
            let rest = read_until(&mut stream, |_| false).await;
            assert!(rest.ends_with(CLOSE));
        }
    }
    wait_for_watches(&stage, 0).await;
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_without_end_whose_answers_are_not_read_hold_up_nobody() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let (mut stream, _) = open(stage.address, "/api/v1/nodes?watch=1").await;
    let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'a'; 125]].concat();
    // The gateway reads all pings, although the client reads no pong. Of several pings it answers only the latest.
    send(&mut stream, &ping.repeat(20_000)).await;
    assert_eq!(stage.get("/api/v1/nodes").await.status(), 200);
    send(&mut stream, &[0x88, 0x80, 0, 0, 0, 0]).await;
    let rest = read_until(&mut stream, |received| received.ends_with(CLOSE)).await;
    assert!(rest.ends_with(CLOSE), "{} bytes", rest.len());
    stage.end(witness).await;
}
