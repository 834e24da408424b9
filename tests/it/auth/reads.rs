//! Authorization of lists and watches that memory answers: who may read, and the error messages of refusals.

use bytes::Bytes;
use http::{Response, StatusCode};
use kube_fanout::config::AuthMode;
use serde_json::{Value, json};

use crate::auth::ASKING;
use crate::support::PATIENCE;
use crate::support::auth::{AuthStage, ROOT, next_piece};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn rule(verbs: &[&str], resource: &str) -> Value {
    json!({"verbs": verbs, "apiGroups": [""], "resources": [resource]})
}

/// The status, the headers that clients may read, and the body.
fn seen(response: &Response<Bytes>) -> (StatusCode, Vec<String>, String) {
    let names = [
        "content-type",
        "cache-control",
        "audit-id",
        "x-content-type-options",
    ];
    let headers = names.map(|name| {
        let value = response.headers().get(name);
        format!(
            "{name}: {}",
            value.map_or("-", |value| value.to_str().unwrap())
        )
    });
    let body = String::from_utf8(response.body().to_vec()).unwrap();
    (response.status(), headers.to_vec(), body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_read_is_refused_in_the_servers_words() {
    for mode in ASKING {
        let stage = AuthStage::new(mode).await;
        stage.user("ann-token", "ann", &["dev"]);
        stage.user("bob-token", "bob<&>", &[]);
        stage
            .allow("ann-pods", "ann", rule(&["list"], "pods"), "default")
            .await;
        let rows = [
            ("ann-token", PODS),
            ("ann-token", "/api/v1/namespaces/default/pods?watch=1"),
            ("ann-token", "/api/v1/watch/namespaces/default/pods"),
            ("ann-token", "/api/v1/pods"),
            ("ann-token", "/api/v1/namespaces/other/pods"),
            ("ann-token", "/api/v1/namespaces/default/configmaps"),
            (
                "ann-token",
                "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Da",
            ),
            (
                "ann-token",
                "/apis/apps/v1/namespaces/default/deployments?limit=1",
            ),
            ("ann-token", "/api/v1/nodes?watch=1&timeoutSeconds=1"),
            ("bob-token", PODS),
            ("unknown-token", PODS),
            ("unknown-token", "/api/v1/pods?watch=1"),
            ("", PODS),
        ];
        for (token, target) in rows {
            let direct = seen(&stage.ask_apiserver(token, "GET", target).await);
            let through = seen(&stage.get(token, target).await);
            let is_allowed = (token, target) == ("ann-token", PODS);
            assert_eq!(direct.0 == StatusCode::OK, is_allowed, "{token} {target}");
            if token.is_empty() {
                // The gateway does not accept anonymous callers here, even if the API server does.
                let codes = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
                assert!(codes.contains(&through.0), "{through:?}");
                continue;
            }
            assert_eq!(through.0, direct.0, "{mode:?} {token} {target} {through:?}");
            if !is_allowed {
                assert_eq!(through, direct, "{mode:?} {token} {target}");
            }
        }
        let refused = async |reason: &str| {
            let reason = format!("reason=\"{reason}\"");
            stage
                .metric("kube_fanout_auth_refusals_total", &[&reason])
                .await
        };
        assert!(refused("forbidden").await >= 8.0);
        assert!(refused("unauthorized").await >= 2.0);
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_users_share_a_view_and_a_third_never_sees_it() {
    for mode in ASKING {
        let stage = AuthStage::new(mode).await;
        for name in ["ann", "bob", "eve"] {
            stage.user(&format!("{name}-token"), name, &[]);
        }
        for name in ["ann", "bob"] {
            let rule = rule(&["list", "watch"], "configmaps");
            stage
                .allow(&format!("{name}-maps"), name, rule, "default")
                .await;
        }
        let target = "/api/v1/namespaces/default/configmaps?watch=1";
        let mut streams = Vec::new();
        for (name, is_http2) in [("ann", false), ("bob", true)] {
            let response = stage
                .watch(&format!("{name}-token"), target, is_http2)
                .await;
            assert_eq!(response.status(), StatusCode::OK);
            streams.push(response.into_body());
        }
        let refused = stage.get("eve-token", target).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        let object = json!({"metadata": {"name": "shared"}, "data": {"key": "secret-value"}});
        stage
            .create("/api/v1/namespaces/default/configmaps", &object)
            .await;
        for stream in &mut streams {
            while !next_piece(stream).await.unwrap().contains("secret-value") {}
        }
        let watches = ["resource=\"configmaps\"", "verb=\"WATCH\""];
        let open = stage.metric("kube_fanout_longrunning_requests", &watches);
        assert_eq!(open.await, 2.0);
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_impersonates_gets_what_the_other_may_read() {
    for mode in ASKING {
        let stage = AuthStage::new(mode).await;
        stage.user("ann-token", "ann", &[]);
        stage.user("eve-token", "eve", &[]);
        stage
            .allow("ann-pods", "ann", rule(&["list"], "pods"), "default")
            .await;
        let server = stage.apiserver.address();
        for (token, user, group, code) in [
            (ROOT, "ann", "", StatusCode::OK),
            (ROOT, "eve", "", StatusCode::FORBIDDEN),
            (ROOT, "eve", "system:masters", StatusCode::OK),
            // A caller without the right to impersonate is refused.
            ("eve-token", "ann", "", StatusCode::FORBIDDEN),
            ("ann-token", "root", "system:masters", StatusCode::FORBIDDEN),
            // A group without a user name is invalid.
            (ROOT, "", "system:masters", StatusCode::BAD_REQUEST),
        ] {
            let authorization = format!("Bearer {token}");
            let headers = [
                ("authorization", &*authorization),
                ("impersonate-user", user),
                ("impersonate-group", group),
            ];
            let direct = stage.ask_with(server, "GET", PODS, &headers).await;
            let through = stage.ask_with(stage.address, "GET", PODS, &headers).await;
            let text = format!("{mode:?} {token} as {user} {group}: {:?}", seen(&through));
            assert_eq!(through.status(), code, "{text}");
            assert_eq!(direct.status(), code, "{text}");
            // In review mode the gateway itself refuses impersonation, naming the right that all API server versions know. The API server's
            // message names the last right that it checked, so the messages differ.
            let is_own_refusal = mode == AuthMode::Review && token != ROOT;
            if code == StatusCode::FORBIDDEN && !is_own_refusal {
                assert_eq!(seen(&through), seen(&direct), "{text}");
            }
        }
        stage.ended().await;
    }
}

/// Browsers send the token this way, because they cannot set `Authorization` on a WebSocket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_may_bring_its_token_as_a_protocol_and_is_not_told_it_again() {
    use base64::Engine;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for mode in ASKING {
        let stage = AuthStage::new(mode).await;
        stage.user("ann-token", "ann", &[]);
        stage.user("eve-token", "eve", &[]);
        stage
            .allow("ann-pods", "ann", rule(&["watch"], "pods"), "default")
            .await;
        for (token, code) in [("ann-token", 101), ("eve-token", 403), ("no-token", 401)] {
            let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token);
            let head = format!(
                "GET {PODS}?watch=1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Origin: http://a\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                 Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{encoded}, mine\r\n\r\n"
            );
            let mut stream = tokio::net::TcpStream::connect(stage.address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut received = Vec::new();
            while !received.windows(4).any(|end| end == b"\r\n\r\n") {
                let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut received));
                assert!(read.await.unwrap().unwrap() > 0);
            }
            let text = String::from_utf8_lossy(&received).to_lowercase();
            assert!(
                text.starts_with(&format!("http/1.1 {code} ")),
                "{mode:?} {text}"
            );
            assert!(!text.contains(&encoded.to_lowercase()), "{text}");
            let has_agreed = text.contains("sec-websocket-protocol: mine\r\n");
            assert_eq!(has_agreed, code == 101, "{text}");
        }
        stage.ended().await;
    }
}
