//! Callers with different rights: a comparison asks memory for what its caller may read, and for nothing else.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::BodyExt as _;
use kube_fanout::config::AuthMode;
use serde_json::json;

use super::by_outcome;
use crate::support::auth::{AuthStage, ROOT, bearer, next_piece, until};
use crate::support::client::metric_sum;
use crate::support::http_server::{HttpServer, Upstream};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BOB: &str = "bobs-token";
const CAROL: &str = "carols-token";
const NOBODY: &str = "nobodys-token";
/// Has the front send a request as a user who may do everything, which the gateway does not know.
const AS_ROOT: (&str, &str) = ("x-as-root", "true");

struct Stage {
    auth: AuthStage,
    _front: HttpServer,
}

impl Stage {
    async fn new(mode: AuthMode) -> Self {
        let mut front = None;
        let start = async |apiserver| {
            let upstream = Upstream::new(apiserver);
            let server = HttpServer::start(move |mut request| {
                let headers = request.headers_mut();
                if headers.contains_key(AS_ROOT.0) {
                    let root = HeaderValue::from_str(&bearer(ROOT)).unwrap();
                    headers.insert(header::AUTHORIZATION, root);
                }
                let upstream = upstream.clone();
                async move { upstream.forward(request).await.map(|body| body.boxed()) }
            });
            front.insert(server.await).address
        };
        let auth = AuthStage::behind(start, mode, |settings| {
            settings.serving = "shadow".parse().unwrap();
        });
        let auth = auth.await;
        auth.allow_bob_alice_and_eve().await;
        auth.user(BOB, "bob", &[]);
        auth.user(CAROL, "carol", &[]);
        Self {
            auth,
            _front: front.unwrap(),
        }
    }

    async fn ask(&self, token: &str, more: (&str, &str)) -> Response<Bytes> {
        let headers = [("authorization", &*bearer(token)), more];
        self.auth
            .ask_with(self.auth.address, "GET", PODS, &headers)
            .await
    }

    /// Waits until the comparisons of a verb have these outcomes.
    async fn compared(&self, verb: &str, expected: &[(&str, usize)]) {
        until("the comparisons are counted", async || {
            let found = by_outcome(self.auth.admin, "pods", verb).await;
            let total = |of: &[(&str, usize)]| of.iter().map(|(_, count)| count).sum::<usize>();
            assert!(total(&found) <= total(expected), "{verb}: {found:?}");
            found == expected
        })
        .await;
    }

    /// Objects in memory.
    async fn cached(&self) -> usize {
        let pods = r#"resource="pods""#;
        metric_sum(self.auth.admin, "kube_fanout_cache_objects", pods).await
    }
}

async fn check(mode: AuthMode) {
    let stage = Stage::new(mode).await;
    // Both sides refuse them, each in its own way to ask, and clients get upstream's refusal.
    for (token, code) in [(CAROL, 403), (NOBODY, 401)] {
        let response = stage.ask(token, ("accept", "application/json")).await;
        let direct = stage.auth.ask_apiserver(token, "GET", PODS).await;
        assert_eq!(response.status(), code);
        assert_eq!(response.body(), direct.body());
    }
    stage.compared("LIST", &[("equal", 2)]).await;

    // Upstream takes them for somebody else. Memory has nothing for them, whatever upstream answers.
    let root = stage.auth.ask_apiserver(ROOT, "GET", PODS).await;
    for token in [CAROL, NOBODY] {
        let response = stage.ask(token, AS_ROOT).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.body(), root.body());
    }
    stage.compared("LIST", &[("equal", 2), ("status", 2)]).await;
    let watch = format!("{PODS}?watch=1&resourceVersion=0");
    let refused = stage.auth.watch(CAROL, &watch, false).await;
    assert_eq!(refused.status(), 403);
    stage.compared("WATCH", &[("equal", 1)]).await;
    assert_eq!(stage.cached().await, 0, "nothing was read for anybody");

    let response = stage.ask(BOB, ("accept", "application/json")).await;
    assert_eq!(response.body(), root.body());
    stage.compared("LIST", &[("equal", 3), ("status", 2)]).await;
    assert_eq!(stage.cached().await, 20);
    let version = serde_json::from_slice::<serde_json::Value>(root.body()).unwrap();
    let version = version["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("{PODS}?watch=1&resourceVersion={version}");
    let mut body = stage.auth.watch(BOB, &watch, false).await.into_body();
    let pod = json!({"metadata": {"name": "new"}});
    stage.auth.create(PODS, &pod).await;
    let event = next_piece(&mut body).await.unwrap();
    assert!(event.contains(r#""name":"new""#), "{event}");
    stage.compared("WATCH", &[("equal", 2)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_asked_for_authorized_callers_only_with_self_check() {
    check(AuthMode::SelfCheck).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_asked_for_authorized_callers_only_with_reviews() {
    check(AuthMode::Review).await;
}
