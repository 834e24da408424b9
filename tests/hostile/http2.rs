//! HTTP/2 with prior knowledge: wrong prefaces, streams reset as fast as they are opened, windows that stay shut.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::frames::{ACK, GOAWAY, PING, PREFACE, Raw, frame, get, reset};
use crate::stage::{PATIENCE, Stage};
use crate::wire::exchange;

const NO_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const PODS: &str = "/api/v1/namespaces/default/pods";
const RESET_COUNT: u32 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_preface_or_frame_ends_its_connection_only() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let huge = [PREFACE, &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat();
    let headers_on_zero = [PREFACE, NO_SETTINGS, &frame(1, 5, 0, &[0x82])].concat();
    let bad_hpack = [PREFACE, NO_SETTINGS, &frame(1, 5, 1, &[0xff; 32])].concat();
    let no_settings = [PREFACE, &frame(0, 0, 1, b"data")].concat();
    for sent in [
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".as_slice(),
        b"PRI nonsense\r\n\r\n",
        b"PRI ",
        &huge,
        &headers_on_zero,
        &bad_hpack,
        &no_settings,
    ] {
        // Ends: the gateway closes the connection.
        exchange(stage.address, sent).await;
    }
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_streams_opened_and_reset_touch_nobody() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = Raw::connect(stage.address, &[]).await;
    let mut sent = Vec::new();
    for number in 0..RESET_COUNT {
        sent.extend_from_slice(&get(2 * number + 1, PODS));
        sent.extend_from_slice(&reset(2 * number + 1));
    }
    sent.extend_from_slice(&frame(PING, 0, 0, b"the ping"));
    raw.send(&sent).await;
    // Either the connection lives and acknowledges the ping, or it is told to go away.
    raw.until(|frame| frame.kind == GOAWAY || frame.kind == PING && frame.flags == ACK)
        .await;
    assert_eq!(stage.get(PODS).await.status(), 200);
    stage.end(witness).await;
}

type Sender = SendRequest<Empty<Bytes>>;

/// A connection whose streams have little room, and whose connection window has plenty.
async fn connect(server: SocketAddr, tasks: &mut JoinSet<()>) -> Sender {
    let stream = TcpStream::connect(server).await.unwrap();
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1_024)
        .initial_connection_window_size(1 << 20)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tasks.spawn(async move {
        // How it ends is nobody's concern.
        let _ = connection.await;
    });
    sender
}

async fn ask(sender: &mut Sender, target: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://a{target}"))
        .body(Empty::new())
        .unwrap();
    let answer = tokio::time::timeout(PATIENCE, sender.send_request(request)).await;
    answer.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_never_read_stall_no_others_on_their_connection() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut tasks = JoinSet::new();
    let mut sender = connect(stage.address, &mut tasks).await;
    let mut stalled = Vec::new();
    for number in 0..50 {
        let kind = if number % 2 == 0 { "?watch=1" } else { "" };
        let answer = ask(&mut sender, &format!("{PODS}{kind}")).await;
        assert_eq!(answer.status(), 200);
        // Kept and not read: its window stays shut.
        stalled.push(answer);
    }
    for _ in 0..5 {
        let answer = ask(&mut sender, PODS).await;
        let whole = tokio::time::timeout(PATIENCE, answer.into_body().collect());
        let whole = whole.await.unwrap().unwrap().to_bytes();
        assert!(whole.ends_with(b"]}\n"), "{} bytes", whole.len());
    }
    drop(stalled);
    assert_eq!(ask(&mut sender, PODS).await.status(), 200);
    stage.end(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_falls_out_of_history_is_told_and_counted() {
    const RECEIVED: &str = "kube_fanout_upstream_events_received_total";
    const PODS_ONLY: &[&str] = &["resource=\"pods\""];
    let stage = Stage::with(|settings| settings.ring.events_max = 100).await;
    let witness = stage.witness().await;
    let mut tasks = JoinSet::new();
    let mut sender = connect(stage.address, &mut tasks).await;
    let answer = ask(&mut sender, "/api/v1/pods?watch=1").await;
    // What comes at once may be given to the watcher as one piece, however much it is: so it comes in turns.
    for _ in 0..5 {
        let begun = stage.metric(RECEIVED, PODS_ONLY).await;
        stage.apiserver.set_churn(1_000);
        stage
            .metric_reaches(RECEIVED, PODS_ONLY, begun + 200.0)
            .await;
        stage.apiserver.set_churn(0);
    }
    let whole = tokio::time::timeout(PATIENCE, answer.into_body().collect());
    let whole = whole.await.unwrap().unwrap().to_bytes();
    let last = whole.trim_ascii_end().rsplit(|&byte| byte == b'\n').next();
    let last: serde_json::Value = serde_json::from_slice(last.unwrap()).unwrap();
    assert_eq!(last["type"], "ERROR", "{last}");
    assert_eq!(last["object"]["code"], 410, "{last}");
    assert_eq!(last["object"]["reason"], "Expired", "{last}");
    stage
        .metric_reaches("kube_fanout_lagged_total", PODS_ONLY, 1.0)
        .await;
    stage.end(witness).await;
}
