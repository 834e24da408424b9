//! HTTP/2 with prior knowledge: wrong prefaces, streams that are reset as fast as they are opened, and windows that stay closed.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::hostile::frames::{ACK, GOAWAY, PING, PREFACE, RawConnection, frame, get, reset};
use crate::hostile::stage::Stage;
use crate::hostile::wire::exchange;
use crate::support::PATIENCE;

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
        // Returns once the gateway has closed the connection.
        exchange(stage.address, sent).await;
    }
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_streams_opened_and_reset_touch_nobody() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = RawConnection::connect(stage.address, &[]).await;
    let mut sent = Vec::new();
    for number in 0..RESET_COUNT {
        sent.extend_from_slice(&get(2 * number + 1, PODS));
        sent.extend_from_slice(&reset(2 * number + 1));
    }
    sent.extend_from_slice(&frame(PING, 0, 0, b"the ping"));
    raw.send(&sent).await;
    // Either the connection stays open and the ping is acknowledged, or the gateway sends GOAWAY.
    raw.until(|frame| frame.kind == GOAWAY || frame.kind == PING && frame.flags == ACK)
        .await;
    assert_eq!(stage.get(PODS).await.status(), 200);
    stage.check_and_shut_down(witness).await;
}

type Sender = SendRequest<Empty<Bytes>>;

/// Opens a connection with small stream windows and a large connection window.
async fn connect(server: SocketAddr, tasks: &mut JoinSet<()>) -> Sender {
    let stream = TcpStream::connect(server).await.unwrap();
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1_024)
        .initial_connection_window_size(1 << 20)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tasks.spawn(async move {
        // The test does not depend on how the connection ends.
        let _ = connection.await;
    });
    sender
}

async fn send_get(sender: &mut Sender, target: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://a{target}"))
        .body(Empty::new())
        .unwrap();
    let response = tokio::time::timeout(PATIENCE, sender.send_request(request)).await;
    response.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_with_an_invalid_escape_is_refused_as_over_http1() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut tasks = JoinSet::new();
    let mut sender = connect(stage.address, &mut tasks).await;
    for target in ["/api/v1/%zz", "/%", "/api/v1/namespaces/default/pods/%4"] {
        let over_http1 = stage.get(target).await;
        let response = send_get(&mut sender, target).await;
        assert_eq!(
            (response.status(), over_http1.status()),
            (StatusCode::BAD_REQUEST, StatusCode::BAD_REQUEST),
            "{target}"
        );
        assert_eq!(
            response.headers()["content-type"],
            over_http1.headers()["content-type"]
        );
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, over_http1.body(), "{target}");
    }
    assert_eq!(send_get(&mut sender, PODS).await.status(), 200);
    stage.check_and_shut_down(witness).await;
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
        let response = send_get(&mut sender, &format!("{PODS}{kind}")).await;
        assert_eq!(response.status(), 200);
        // Kept and never read: its window stays closed.
        stalled.push(response);
    }
    for _ in 0..5 {
        let response = send_get(&mut sender, PODS).await;
        let whole = tokio::time::timeout(PATIENCE, response.into_body().collect());
        let whole = whole.await.unwrap().unwrap().to_bytes();
        assert!(whole.ends_with(b"]}\n"), "{} bytes", whole.len());
    }
    drop(stalled);
    assert_eq!(send_get(&mut sender, PODS).await.status(), 200);
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_falls_out_of_history_is_told_and_counted() {
    const RECEIVED: &str = "kube_fanout_upstream_events_received_total";
    const PODS_ONLY: &[&str] = &["resource=\"pods\""];
    let stage = Stage::with(|settings| settings.ring.events_max = 100).await;
    let witness = stage.witness().await;
    let mut tasks = JoinSet::new();
    let mut sender = connect(stage.address, &mut tasks).await;
    let response = send_get(&mut sender, "/api/v1/pods?watch=1").await;
    // The watcher may receive events that arrive together as one frame, however many they are. So they are written in several rounds.
    for _ in 0..5 {
        let before = stage.metric(RECEIVED, PODS_ONLY).await;
        stage.apiserver.set_churn(1_000);
        stage
            .metric_reaches(RECEIVED, PODS_ONLY, before + 200.0)
            .await;
        stage.apiserver.set_churn(0);
    }
    let whole = tokio::time::timeout(PATIENCE, response.into_body().collect());
    let whole = whole.await.unwrap().unwrap().to_bytes();
    let last = whole.trim_ascii_end().rsplit(|&byte| byte == b'\n').next();
    let last: serde_json::Value = serde_json::from_slice(last.unwrap()).unwrap();
    assert_eq!(last["type"], "ERROR", "{last}");
    assert_eq!(last["object"]["code"], 410, "{last}");
    assert_eq!(last["object"]["reason"], "Expired", "{last}");
    stage
        .metric_reaches("kube_fanout_lagged_total", PODS_ONLY, 1.0)
        .await;
    stage.check_and_shut_down(witness).await;
}
