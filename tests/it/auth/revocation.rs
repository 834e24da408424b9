//! Open streams whose caller loses the permission or the token: they end.

use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::auth::ASKING;
use crate::support::PATIENCE;
use crate::support::auth::{AuthStage, next_piece, read_to_end, until};

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A WebSocket close frame with code 1000 (normal closure).
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

/// Reads everything until the server closes the WebSocket.
async fn read_socket(mut stream: TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    while !received.ends_with(CLOSE) {
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut received)).await;
        assert!(
            read.unwrap().unwrap() > 0,
            "the connection was closed after {received:?}"
        );
    }
    received
}

async fn stage_with(mode: kube_fanout::config::AuthMode) -> AuthStage {
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

/// Opens a watch of each kind as ann, calls `revoke`, and checks that they end while bob's watch continues.
async fn check(stage: AuthStage, revoke: impl AsyncFnOnce(&AuthStage), reconnect: StatusCode) {
    let mut bobs_watch = stage.watch("bob-token", WATCH, false).await.into_body();
    let http1 = stage.watch("ann-token", WATCH, false).await;
    let http2 = stage.watch("ann-token", WATCH, true).await;
    assert_eq!(
        (http1.status(), http2.status()),
        (StatusCode::OK, StatusCode::OK)
    );
    // This client does not read until the permission is revoked.
    let blocked = stage.watch("ann-token", WATCH, false).await.into_body();
    // This watch waits for a future resource version.
    let ahead = format!("{WATCH}&resourceVersion=1000000000000000");
    let ahead = stage.watch("ann-token", &ahead, false).await.into_body();
    let socket = websocket(&stage, "ann-token").await;
    until("all watches are open", async || {
        open_watches(&stage).await == 6.0
    })
    .await;
    stage.create(MAPS, &map("before")).await;
    while !next_piece(&mut bobs_watch)
        .await
        .unwrap()
        .contains("\"before\"")
    {}
    revoke(&stage).await;
    for body in [http1.into_body(), http2.into_body(), blocked] {
        let text = read_to_end(body).await;
        assert!(
            text.contains("\"before\"") && !text.contains("\"after\""),
            "{text}"
        );
        assert!(!text.contains("ERROR"), "{text}");
    }
    assert_eq!(read_to_end(ahead).await, "");
    let received = read_socket(socket).await;
    assert!(received.starts_with(b"HTTP/1.1 101 "));
    stage.create(MAPS, &map("after")).await;
    while !next_piece(&mut bobs_watch)
        .await
        .unwrap()
        .contains("\"after\"")
    {}
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
        let stage = stage_with(mode).await;
        let revoke = async |stage: &AuthStage| stage.forbid("ann-maps", "default").await;
        check(stage, revoke, StatusCode::FORBIDDEN).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_when_the_token_is_deleted() {
    for mode in ASKING {
        let stage = stage_with(mode).await;
        let revoke = async |stage: &AuthStage| {
            assert!(stage.apiserver.tokens().remove("ann-token"));
        };
        check(stage, revoke, StatusCode::UNAUTHORIZED).await;
    }
}
