//! Requests that memory cannot answer: the API server authorizes the caller, not the gateway.

use http::StatusCode;
use serde_json::{Value, json};

use crate::auth::ASKING;
use crate::support::auth::{AuthStage, ROOT};

fn status(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forwarded_is_the_callers_own_request() {
    for mode in ASKING {
        let stage = AuthStage::new(mode).await;
        stage.user("ann-token", "ann", &[]);
        let rule = json!({"verbs": ["get", "create"], "apiGroups": [""], "resources": ["secrets"]});
        stage.allow("ann-secrets", "ann", rule, "default").await;
        let secrets = "/api/v1/namespaces/default/secrets";
        stage
            .create(secrets, &json!({"metadata": {"name": "one"}}))
            .await;
        // The gateway's own rights: it may read all of these resources, and write none.
        let rows = [
            ("ann-token", "GET", format!("{secrets}/one")),
            ("ann-token", "DELETE", format!("{secrets}/one")),
            (
                "ann-token",
                "GET",
                "/api/v1/namespaces/default/pods/any".to_owned(),
            ),
            (
                "ann-token",
                "GET",
                "/api/v1/namespaces/default/pods/any/log".to_owned(),
            ),
            (
                "ann-token",
                "POST",
                "/api/v1/namespaces/default/pods/any/exec".to_owned(),
            ),
            (
                "ann-token",
                "GET",
                "/api/v1/namespaces/default/secrets".to_owned(),
            ),
            (
                "ann-token",
                "GET",
                "/api/v1/namespaces/default/events".to_owned(),
            ),
            ("ann-token", "GET", "/api/v1/no-such-things".to_owned()),
            ("ann-token", "GET", "/version".to_owned()),
            (
                "ann-token",
                "GET",
                "/api/v1/namespaces/default/pods/../secrets".to_owned(),
            ),
            (
                "ann-token",
                "GET",
                "/api/v1/namespaces/default%2Fpods".to_owned(),
            ),
            ("unknown-token", "GET", format!("{secrets}/one")),
            (ROOT, "GET", format!("{secrets}/one")),
            ("", "GET", format!("{secrets}/one")),
        ];
        for (token, method, target) in rows {
            let direct = stage.ask_apiserver(token, method, &target).await;
            let through = stage.ask(token, method, &target).await;
            let text = format!("{mode:?} {token} {method} {target}");
            assert_eq!(through.status(), direct.status(), "{text}");
            assert_eq!(through.body(), direct.body(), "{text}");
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "a table of rows")]
#[expect(clippy::type_complexity, reason = "a table of rows")]
async fn no_header_makes_a_forwarded_request_somebody_elses() {
    for mode in ASKING {
        let stage = AuthStage::new(mode).await;
        stage.user("ann-token", "ann", &[]);
        let target = "/api/v1/namespaces/default/secrets/one";
        let own = ("authorization", "Bearer ann-token");
        let root = ("impersonate-user", "root");
        let masters = ("impersonate-group", "system:masters");
        let rows: [(&[(&str, &str)], StatusCode, &str); 9] = [
            (
                &[own, root, masters],
                StatusCode::FORBIDDEN,
                "\"ann\" cannot impersonate",
            ),
            (
                &[own, root, ("connection", "impersonate-user")],
                StatusCode::FORBIDDEN,
                "\"ann\" cannot impersonate",
            ),
            (
                &[own, ("connection", "authorization")],
                StatusCode::FORBIDDEN,
                "\"ann\" cannot get",
            ),
            (
                &[
                    own,
                    ("x-remote-user", "root"),
                    ("x-remote-group", "system:masters"),
                ],
                StatusCode::FORBIDDEN,
                "\"ann\" cannot get",
            ),
            (
                &[own, ("x_remote_user", "root"), ("impersonate_user", "root")],
                StatusCode::FORBIDDEN,
                "\"ann\" cannot get",
            ),
            (
                &[
                    own,
                    ("x-forwarded-uri", "/healthz"),
                    ("x-forwarded-for", "127.0.0.1"),
                ],
                StatusCode::FORBIDDEN,
                "\"ann\" cannot get",
            ),
            (
                &[own, ("authorization", "Bearer root-token")],
                StatusCode::FORBIDDEN,
                "\"ann\" cannot get",
            ),
            (
                &[("x-remote-user", "root")],
                StatusCode::FORBIDDEN,
                "\"system:anonymous\" cannot get",
            ),
            (
                &[("authorization", "Bearer ")],
                StatusCode::FORBIDDEN,
                "\"system:anonymous\" cannot get",
            ),
        ];
        for (headers, code, words) in rows {
            let through = stage.ask_with(stage.address, "GET", target, headers).await;
            assert_eq!(through.status(), code, "{mode:?} {headers:?}");
            let message = status(through.body())["message"]
                .to_string()
                .replace('\\', "");
            assert!(message.contains(words), "{mode:?} {headers:?} {message}");
            // The same headers do not authorize a request that memory answers either.
            let list = "/api/v1/namespaces/default/pods";
            let through = stage.ask_with(stage.address, "GET", list, headers).await;
            let code = through.status();
            assert!(code == 401 || code == 403, "{mode:?} {headers:?} {code}");
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_memory_never_answers_is_reviewed_by_nobody() {
    let stage = AuthStage::new(kube_fanout::config::AuthMode::Review).await;
    stage.user("ann-token", "ann", &[]);
    for target in [
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/events?watch=1",
        "/api/v1/namespaces/default/pods/any",
        "/apis/no.such.group/v1/things",
        "/version",
    ] {
        stage.get("ann-token", target).await;
    }
    for kind in ["authentication", "authorization"] {
        let name = format!("kube_fanout_{kind}_reviews_total");
        assert_eq!(stage.metric(&name, &[]).await, 0.0, "{name}");
    }
    stage
        .get("ann-token", "/api/v1/namespaces/default/pods")
        .await;
    let reviews = stage.metric("kube_fanout_authorization_reviews_total", &[]);
    assert_eq!(reviews.await, 1.0);
    stage.ended().await;
}
