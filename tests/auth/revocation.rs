//! Streams that are open when their caller may no longer see what they show.

use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ASKING;
use crate::auth::{AuthStage, PATIENCE, next_piece, read_to_end, until};

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A normal close of a WebSocket.
const CLOSE: &[u8] = &[0x88, 2, 0x03, 0xe8];

fn rule() -> Value {
    json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["configmaps"]})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

async fn websocket(stage: &AuthStage, token: &str) -> TcpStream {
    let head = format!(
        "GET {WATCH} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://a\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// All that comes until a WebSocket is closed.
async fn read_socket(mut stream: TcpStream) -> Vec<u8> {
    let mut came = Vec::new();
    while !came.ends_with(CLOSE) {
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut came)).await;
        assert!(read.unwrap().unwrap() > 0, "cut: {came:?}");
    }
    came
}

async fn staged(mode: kube_fanout::config::AuthMode) -> AuthStage {
    let stage = AuthStage::new(mode).await;
    stage.user("ann-token", "ann", &[]);
    stage.user("bob-token", "bob", &[]);
    stage.allow("ann-maps", "ann", rule(), "default").await;
    stage.allow("bob-maps", "bob", rule(), "default").await;
    stage
}

async fn open_watches(stage: &AuthStage) -> f64 {
    let labels = ["resource=\"configmaps\"", "verb=\"WATCH\""];
    stage
        .metric("kube_fanout_longrunning_requests", &labels)
        .await
}

/// Opens streams of each kind as ann, takes something away, and sees them end while bob's goes on.
async fn check(stage: AuthStage, take_away: impl AsyncFnOnce(&AuthStage), reconnect: StatusCode) {
    let mut stays = stage.watch("bob-token", WATCH, false).await.into_body();
    let http1 = stage.watch("ann-token", WATCH, false).await;
    let http2 = stage.watch("ann-token", WATCH, true).await;
    assert_eq!(
        (http1.status(), http2.status()),
        (StatusCode::OK, StatusCode::OK)
    );
    // It never reads until its permission is gone.
    let blocked = stage.watch("ann-token", WATCH, false).await.into_body();
    // It waits for a version that is still to come.
    let ahead = format!("{WATCH}&resourceVersion=999999999");
    let ahead = stage.watch("ann-token", &ahead, false).await.into_body();
    let socket = websocket(&stage, "ann-token").await;
    until("all watches are open", async || {
        open_watches(&stage).await == 6.0
    })
    .await;
    stage.create(MAPS, &map("before")).await;
    while !next_piece(&mut stays).await.unwrap().contains("\"before\"") {}
    take_away(&stage).await;
    for body in [http1.into_body(), http2.into_body(), blocked] {
        let text = read_to_end(body).await;
        assert!(
            text.contains("\"before\"") && !text.contains("\"after\""),
            "{text}"
        );
        assert!(!text.contains("ERROR"), "{text}");
    }
    assert_eq!(read_to_end(ahead).await, "");
    let came = read_socket(socket).await;
    assert!(came.starts_with(b"HTTP/1.1 101 "));
    stage.create(MAPS, &map("after")).await;
    while !next_piece(&mut stays).await.unwrap().contains("\"after\"") {}
    for target in [WATCH, MAPS] {
        let refused = stage.get("ann-token", target).await;
        assert_eq!(refused.status(), reconnect, "{target}");
    }
    let reason = ["reason=\"revoked\""];
    let revoked = stage.metric("kube_fanout_stream_ends_total", &reason).await;
    assert_eq!(revoked, 5.0);
    assert_eq!(open_watches(&stage).await, 1.0);
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_when_the_binding_is_deleted() {
    for mode in ASKING {
        let stage = staged(mode).await;
        let take_away = async |stage: &AuthStage| stage.forbid("ann-maps", "default").await;
        check(stage, take_away, StatusCode::FORBIDDEN).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_when_the_token_is_deleted() {
    for mode in ASKING {
        let stage = staged(mode).await;
        let take_away = async |stage: &AuthStage| {
            assert!(stage.apiserver.tokens().remove("ann-token"));
        };
        check(stage, take_away, StatusCode::UNAUTHORIZED).await;
    }
}
