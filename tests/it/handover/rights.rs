//! A cache is handed over only to callers that may list and watch all of it, and that may use the path.

use std::time::Duration;

use kube_fanout::config::{AuthMode, HandoverSettings};
use serde_json::{Value, json};

use crate::support::auth::{AuthStage, ROOT};

const INDEX: &str = "/kube-fanout/handover";
const PODS: &str = "/kube-fanout/handover/pods.v1.json";
const LOAD: &str = "/kube-fanout/handover/load";

fn path() -> Value {
    json!({"verbs": ["get"], "nonResourceURLs": [INDEX, format!("{INDEX}/*")]})
}

fn pods(verbs: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [""], "resources": ["pods"]})
}

async fn check_rights(mode: AuthMode) {
    // It compares itself with others, though none is there.
    let stage = AuthStage::with(mode, |settings| {
        settings.handover = Some(HandoverSettings {
            from: "http://127.0.0.1:1".parse().unwrap(),
            ca_file: None,
            server_name: None,
            token_file: None,
            timeout: Duration::from_secs(5),
            len_max: 1 << 30,
            rebalance_interval: Some(Duration::from_secs(3_600)),
        });
    })
    .await;
    for (user, rules) in [
        ("nobody", vec![]),
        ("walker", vec![("", path())]),
        ("reader", vec![("", pods(&["list", "watch"]))]),
        ("lister", vec![("", path()), ("", pods(&["list"]))]),
        (
            "neighbour",
            vec![("", path()), ("default", pods(&["list", "watch"]))],
        ),
        ("peer", vec![("", path()), ("", pods(&["list", "watch"]))]),
    ] {
        stage.user(&format!("{user}-token"), user, &[]);
        for (index, (namespace, rule)) in rules.into_iter().enumerate() {
            let name = format!("{user}-{index}");
            stage.allow(&name, user, rule, namespace).await;
        }
    }
    // The cache is there.
    let list = stage.ask(ROOT, "GET", "/api/v1/pods").await;
    assert_eq!(list.status(), 200);
    for (token, index, pods) in [
        ("", 401, 401),
        ("unknown", 401, 401),
        ("nobody-token", 403, 403),
        ("reader-token", 403, 403),
        ("walker-token", 200, 403),
        ("lister-token", 200, 403),
        ("neighbour-token", 200, 403),
        ("peer-token", 200, 200),
    ] {
        // The load needs the right to its path alone, as the index does.
        for (target, expected) in [(INDEX, index), (LOAD, index), (PODS, pods)] {
            let response = stage.ask(token, "GET", target).await;
            let body = String::from_utf8_lossy(response.body());
            assert_eq!(
                response.status(),
                expected,
                "{mode:?} {token} {target}: {body}"
            );
            if expected >= 400 {
                let status: Value = serde_json::from_str(&body).unwrap();
                assert_eq!(status["kind"], "Status", "{body}");
                assert_eq!(status["code"], expected);
            }
        }
    }
    stage.ended().await;
}

#[tokio::test]
async fn only_who_may_read_all_of_it_takes_a_cache_over() {
    check_rights(AuthMode::SelfCheck).await;
    check_rights(AuthMode::Review).await;
}

#[tokio::test]
async fn roles_decide_alone_who_takes_a_cache_over() {
    check_rights(AuthMode::Rbac).await;
}
