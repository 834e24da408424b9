//! Reviews that fail, are slow or return nonsense: requests fail closed, open streams continue for the grace period, and the gateway
//! recovers together with the API server.

use std::time::Duration;

use http::StatusCode;
use kube_fanout::config::AuthMode;
use kube_fanout_testkit::apiserver::faults::nonsense::Nonsense;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use serde_json::json;

use crate::support::auth::{AuthStage, next_piece, read_to_end, until};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const RESUMED: &str = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=1";
/// More often than any test sends a review.
const ALWAYS: u32 = 1_000_000;

async fn stage_with(mode: AuthMode, grace: Duration) -> AuthStage {
    let stage = AuthStage::with(mode, |settings| {
        settings.auth.reauthorize_grace = grace;
    })
    .await;
    let rule = json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["configmaps"]});
    stage.allow("maps", "ann", rule, "default").await;
    stage
        .create(MAPS, &json!({"metadata": {"name": "secretive"}}))
        .await;
    stage
}

fn order(stage: &AuthStage, fault: Fault, resource: &str) {
    let order = FaultOrder {
        fault,
        verb: None,
        resource: Some(resource.to_owned()),
        count: ALWAYS,
    };
    stage.apiserver.order(order).unwrap();
}

fn refuse(code: u16) -> Fault {
    Fault::Refuse {
        code,
        retry_after_seconds: 1,
    }
}

/// Faults that prove nothing about the caller.
fn failures() -> Vec<Fault> {
    let nonsense = [
        Nonsense::Empty,
        Nonsense::NotJson,
        Nonsense::Truncated,
        Nonsense::WrongKind,
        Nonsense::NoStatus,
        Nonsense::StatusText,
        Nonsense::Text,
        Nonsense::Oversized { len: 5 << 20 },
        Nonsense::Deep { depth: 200_000 },
    ];
    let mut failures = vec![refuse(410), refuse(429), refuse(500), refuse(503)];
    failures.push(Fault::BreakOff);
    failures.extend(nonsense.map(Fault::Nonsense));
    failures
}

/// Sends requests with a new token while reviews of this kind fail, and again once they succeed.
async fn fails_closed(stage: &AuthStage, fault: Fault, review: &str, code: StatusCode) {
    let token = format!("token-{review}-{fault:?}")
        .replace(|character: char| !character.is_ascii_alphanumeric(), "-");
    stage.user(&token, "ann", &[&token]);
    order(stage, fault, review);
    for target in [MAPS, WATCH] {
        let response = stage.get(&token, target).await;
        let body = std::str::from_utf8(response.body()).unwrap();
        assert_eq!(
            response.status(),
            code,
            "{review} {fault:?} {target}: {body}"
        );
        assert!(!body.contains("secretive"), "{body}");
        if code == StatusCode::INTERNAL_SERVER_ERROR {
            assert!(body.starts_with("Internal Server Error: \""), "{body}");
            assert_eq!(
                response.headers()["content-type"],
                "text/plain; charset=utf-8"
            );
        } else {
            assert!(body.contains(r#""reason":"Unauthorized""#), "{body}");
        }
    }
    let response = stage.get(&token, RESUMED).await;
    let body = std::str::from_utf8(response.body()).unwrap();
    if fault == refuse(403) {
        // The gateway lacks a right, and will lack it at the next attempt.
        assert_eq!(response.status(), code, "{review} {body}");
    } else {
        // A client whose watch is refused otherwise would list.
        let code = response.status();
        assert_eq!(code, StatusCode::TOO_MANY_REQUESTS, "{review} {body}");
        assert!(body.contains(r#""reason":"TooManyRequests""#), "{body}");
        let wait = response.headers()["retry-after"].to_str().unwrap();
        // It grows with the time for which reviews have been failing.
        assert!((1..30).contains(&wait.parse::<u32>().unwrap()), "{wait}");
    }
    order(stage, Fault::Clear, review);
    let response = stage.get(&token, MAPS).await;
    assert_eq!(response.status(), StatusCode::OK, "{review} {fault:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_let_in_whose_token_cannot_be_reviewed() {
    for (mode, review) in [
        (AuthMode::Review, "tokenreviews"),
        (AuthMode::Rbac, "tokenreviews"),
        (AuthMode::SelfCheck, "selfsubjectreviews"),
    ] {
        let stage = stage_with(mode, Duration::from_secs(300)).await;
        let mut failures = failures();
        // A review without a user name authenticates nobody, whatever the groups are.
        failures.push(Fault::Nonsense(Nonsense::NoName));
        if mode != AuthMode::SelfCheck {
            // In self-check mode these codes would prove that the caller's own credentials are bad.
            failures.extend([refuse(401), refuse(403)]);
        }
        for fault in failures {
            fails_closed(&stage, fault, review, StatusCode::UNAUTHORIZED).await;
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_served_whose_access_cannot_be_reviewed() {
    for (mode, review) in [
        (AuthMode::Review, "subjectaccessreviews"),
        (AuthMode::SelfCheck, "selfsubjectaccessreviews"),
    ] {
        let stage = stage_with(mode, Duration::from_secs(300)).await;
        let mut failures = failures();
        failures.push(Fault::Nonsense(Nonsense::Contradiction));
        if mode == AuthMode::Review {
            failures.push(refuse(403));
        }
        for fault in failures {
            fails_closed(&stage, fault, review, StatusCode::INTERNAL_SERVER_ERROR).await;
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reviews_are_waited_for() {
    for mode in [AuthMode::Review, AuthMode::SelfCheck] {
        let stage = stage_with(mode, Duration::from_secs(300)).await;
        stage.user("slow", "ann", &[]);
        order(&stage, Fault::Delay { delay_ms: 300 }, "reviews");
        assert_eq!(stage.get("slow", MAPS).await.status(), StatusCode::OK);
        // A remembered decision causes no second review, unless the gateway learns in between what else decides upstream: once.
        let mut is_remembered = false;
        for _ in 0..3 {
            let served = stage.apiserver.reviews().totals();
            assert_eq!(stage.get("slow", MAPS).await.status(), StatusCode::OK);
            is_remembered |= stage.apiserver.reviews().totals() == served;
        }
        assert!(is_remembered);
        stage.ended().await;
    }
}

/// Opens a watch as ann, and then makes all reviews fail.
async fn watch_with_failing_reviews(stage: &AuthStage) -> hyper::body::Incoming {
    stage.user("ann-token", "ann", &[]);
    let watch = stage.watch("ann-token", WATCH, false).await;
    assert_eq!(watch.status(), StatusCode::OK);
    let mut stream = watch.into_body();
    while !next_piece(&mut stream).await.unwrap().contains("secretive") {}
    order(stage, refuse(503), "reviews");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_outlive_failing_reviews_for_their_grace() {
    for mode in [AuthMode::Review, AuthMode::SelfCheck] {
        let stage = stage_with(mode, Duration::from_secs(3_600)).await;
        let mut stream = watch_with_failing_reviews(&stage).await;
        for round in 1..4 {
            let before = stage.apiserver.fault_counts().refused;
            until("a repeated review fails", async || {
                stage.apiserver.fault_counts().refused > before
            })
            .await;
            let name = format!("meanwhile-{round}");
            stage
                .create(MAPS, &json!({"metadata": {"name": name}}))
                .await;
            while !next_piece(&mut stream).await.unwrap().contains(&name) {}
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_with_their_grace_and_may_be_opened_again() {
    for mode in [AuthMode::Review, AuthMode::SelfCheck] {
        let stage = stage_with(mode, Duration::from_millis(500)).await;
        let stream = watch_with_failing_reviews(&stage).await;
        let rest = read_to_end(stream).await;
        assert!(!rest.contains("ERROR"), "{rest}");
        order(&stage, Fault::Clear, "reviews");
        until("the gateway recovers", async || {
            stage.get("ann-token", MAPS).await.status() == StatusCode::OK
        })
        .await;
        stage.ended().await;
    }
}
