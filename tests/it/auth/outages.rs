//! Reviews that fail, are slow or return nonsense: requests fail closed, open streams continue for the grace period, and the gateway
//! recovers without help.

use std::time::Duration;

use kube_fanout::config::{AuthMode, ReviewBudget, UpstreamAuthorizers};
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use serde_json::json;

use crate::support::auth::{AuthStage, next_piece, read_to_end, until};

const MODES: [AuthMode; 2] = [AuthMode::SelfCheck, AuthMode::Review];
const PODS: &str = "/api/v1/namespaces/default/pods";
const WATCH: &str = "/api/v1/namespaces/default/pods?watch=1&resourceVersion=0";
const NEVER: Duration = Duration::from_secs(3_600);

async fn stage(mode: AuthMode, grace: Duration) -> AuthStage {
    let stage = AuthStage::with(mode, |settings| {
        settings.auth.reauthorize_interval = Duration::from_millis(200);
        settings.auth.review_budget = ReviewBudget::Unlimited;
        // Otherwise roles explain what is allowed, and nothing is asked again.
        settings.auth.upstream_authorizers = UpstreamAuthorizers::Opaque;
        settings.auth.reauthorize_grace = grace;
        // No decision is remembered: each request causes a review.
        settings.auth.allow_ttl = Duration::ZERO;
        settings.auth.deny_ttl = Duration::ZERO;
    })
    .await;
    let rule = json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]});
    stage.user("janes-token", "jane", &[]);
    stage.user("joes-token", "joe", &[]);
    stage.allow("jane", "jane", rule, "default").await;
    until("jane may read", async || {
        stage.get("janes-token", PODS).await.status() == 200
    })
    .await;
    assert_eq!(stage.get("joes-token", PODS).await.status(), 403);
    stage
}

/// From now on access reviews fail with this fault; reviews of the callers' identity still succeed.
fn order(stage: &AuthStage, mode: AuthMode, fault: &serde_json::Value) {
    let resource = match mode {
        AuthMode::Review => "subjectaccessreviews",
        AuthMode::SelfCheck => "selfsubjectaccessreviews",
        AuthMode::Rbac | AuthMode::None => unreachable!("no access reviews are sent"),
    };
    let order = json!({"fault": fault, "resource": resource, "count": u32::MAX});
    let order: FaultOrder = serde_json::from_value(order).unwrap();
    stage.apiserver.order(order).unwrap();
}

fn clear(stage: &AuthStage) {
    let order = FaultOrder {
        fault: Fault::Clear,
        verb: None,
        resource: None,
        count: 1,
    };
    stage.apiserver.order(order).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_doubt_nothing_is_served_and_it_recovers_by_itself() {
    let faults = [
        json!({"refuse": {"code": 500}}),
        json!({"refuse": {"code": 429}}),
        json!("breakOff"),
        json!({"nonsense": "empty"}),
        json!({"nonsense": "notJson"}),
        json!({"nonsense": "truncated"}),
        json!({"nonsense": "wrongKind"}),
        json!({"nonsense": "noStatus"}),
        json!({"nonsense": "statusText"}),
        json!({"nonsense": "text"}),
        json!({"nonsense": "contradiction"}),
        json!({"nonsense": {"oversized": {"len": 2 << 20}}}),
        json!({"nonsense": {"deep": {"depth": 100_000}}}),
    ];
    for mode in MODES {
        let stage = stage(mode, NEVER).await;
        for fault in &faults {
            order(&stage, mode, fault);
            for token in ["janes-token", "joes-token"] {
                let refused = stage.get(token, PODS).await;
                assert_eq!(refused.status(), 500, "{mode:?} {fault} {token}");
                let text = std::str::from_utf8(refused.body()).unwrap();
                let start = format!("Internal Server Error: \"{PODS}\": ");
                assert!(text.starts_with(&start), "{text}");
                assert!(!text.contains("127.0.0.1"), "{text}");
            }
            clear(&stage);
            assert_eq!(stage.get("janes-token", PODS).await.status(), 200);
            assert_eq!(stage.get("joes-token", PODS).await.status(), 403);
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_takes_long_is_waited_for() {
    for mode in MODES {
        let stage = stage(mode, NEVER).await;
        order(&stage, mode, &json!({"delay": {"delayMs": 1_000}}));
        assert_eq!(stage.get("janes-token", PODS).await.status(), 200);
        assert_eq!(stage.get("joes-token", PODS).await.status(), 403);
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_cannot_be_reviewed_are_refused() {
    for mode in [AuthMode::SelfCheck, AuthMode::Review, AuthMode::Rbac] {
        let stage = AuthStage::new(mode).await;
        let rule = json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]});
        stage.user("janes-token", "jane", &[]);
        stage.allow("jane", "jane", rule, "default").await;
        for fault in [
            json!({"refuse": {"code": 500}}),
            json!("breakOff"),
            json!({"nonsense": "notJson"}),
        ] {
            let order = json!({"fault": fault, "resource": "reviews", "count": u32::MAX});
            let order: FaultOrder = serde_json::from_value(order).unwrap();
            stage.apiserver.order(order).unwrap();
            let refused = stage.get("janes-token", PODS).await;
            assert_eq!(refused.status(), 401, "{mode:?} {fault}");
            clear(&stage);
        }
        until("the gateway recovers", async || {
            stage.get("janes-token", PODS).await.status() == 200
        })
        .await;
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_streams_outlive_an_outage_that_is_shorter_than_the_grace() {
    for mode in MODES {
        let stage = stage(mode, NEVER).await;
        let mut watch = stage.watch("janes-token", WATCH, false).await;
        let rechecks = async |outcome: &str| {
            let outcome = format!("outcome=\"{outcome}\"");
            let name = "kube_fanout_authorization_rechecks_total";
            stage.metric(name, &[&outcome]).await
        };
        order(&stage, mode, &json!({"nonsense": "contradiction"}));
        until("checks have failed", async || {
            rechecks("failed").await >= 5.0
        })
        .await;
        let pod = json!({"metadata": {"name": "meanwhile"}, "spec": {"containers": []}});
        stage.create(PODS, &pod).await;
        while !next_piece(watch.body_mut())
            .await
            .unwrap()
            .contains("meanwhile")
        {}
        clear(&stage);
        let confirmed = rechecks("confirmed").await;
        until("checks succeed again", async || {
            rechecks("confirmed").await > confirmed + 1.0
        })
        .await;
        let pod = json!({"metadata": {"name": "after"}, "spec": {"containers": []}});
        stage.create(PODS, &pod).await;
        while !next_piece(watch.body_mut())
            .await
            .unwrap()
            .contains("after")
        {}
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_streams_end_with_the_grace() {
    for mode in MODES {
        let stage = stage(mode, Duration::from_secs(2)).await;
        let watch = stage.watch("janes-token", WATCH, false).await;
        let over_http2 = stage.watch("janes-token", WATCH, true).await;
        order(&stage, mode, &json!({"refuse": {"code": 503}}));
        read_to_end(watch.into_body()).await;
        read_to_end(over_http2.into_body()).await;
        assert_eq!(stage.get("janes-token", WATCH).await.status(), 500);
        let resumed = format!("{PODS}?watch=1&resourceVersion=1");
        assert_eq!(stage.get("janes-token", &resumed).await.status(), 429);
        let name = "kube_fanout_authorization_revocations_total";
        assert!(stage.metric(name, &["grace_over"]).await >= 1.0);
        clear(&stage);
        let again = stage.watch("janes-token", WATCH, false).await;
        assert_eq!(again.status(), 200);
        stage.ended().await;
    }
}
