//! Limits per user: one user cannot take the whole limit, and other users behind the same address keep their share.

use http::{Response, StatusCode};
use hyper::body::Incoming;
use kube_fanout::config::AuthMode;
use serde_json::json;

use crate::support::auth::{AuthStage, until};

const BOUND: usize = 50;
/// The part of `BOUND` that one user may take.
const SHARE: usize = 40;
const WATCH: &str = "/api/v1/pods?watch=1";
/// A watch of a resource whose requests are forwarded.
const FORWARDED: &str = "/api/v1/secrets?watch=1";
const SHORTAGES: &str = "kube_fanout_shortages_total";

/// A gateway with three users who may watch; the last one is exempt from the share.
async fn stage() -> AuthStage {
    let stage = AuthStage::with(AuthMode::Review, |settings| {
        settings.admission.watches_max = BOUND;
        settings.forwards.watches_max = BOUND;
        settings.exempt.groups = vec!["operators".to_owned()];
    })
    .await;
    stage.user("token-of-ann", "ann", &[]);
    stage.user("token-of-bob", "bob", &[]);
    stage.user("token-of-eve", "eve", &["operators"]);
    for name in ["ann", "bob", "eve"] {
        let rule = json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["*"]});
        stage.allow(&format!("{name}-reads"), name, rule, "").await;
    }
    stage
}

/// Opens `count` watches and returns the admitted ones; the others must get 429. `as_user` is the impersonated user, if not empty.
async fn take(
    stage: &AuthStage,
    (token, as_user): (&str, &str),
    target: &str,
    count: usize,
) -> Vec<Response<Incoming>> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let answer = stage.watch_as((token, as_user), target, true).await;
        match answer.status() {
            StatusCode::OK => taken.push(answer),
            code => {
                assert_eq!(code, StatusCode::TOO_MANY_REQUESTS);
                assert!(answer.headers().contains_key("retry-after"));
            }
        }
    }
    taken
}

const ANN: (&str, &str) = ("token-of-ann", "");
const BOB: (&str, &str) = ("token-of-bob", "");
const EVE: (&str, &str) = ("token-of-eve", "");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_one_user_leave_those_of_others_behind_the_same_address() {
    let stage = stage().await;
    let greedy = take(&stage, ANN, WATCH, BOUND).await;
    assert_eq!(greedy.len(), SHARE);
    let of_user = ["\"watches\"", "\"user\""];
    assert!(stage.metric(SHORTAGES, &of_user).await >= (BOUND - SHARE) as f64);
    let refused = stage.get(ANN.0, WATCH).await;
    let message = String::from_utf8_lossy(refused.body());
    assert!(message.contains("this user"), "{message}");
    let others = take(&stage, BOB, WATCH, 1).await;
    assert_eq!(others.len(), 1);
    // An exempt user may take all the remaining permits, but not more.
    let exempt = take(&stage, EVE, WATCH, BOUND).await;
    assert_eq!(greedy.len() + others.len() + exempt.len(), BOUND);
    drop((greedy, others, exempt));
    until("permits are released", async || {
        stage.watch(ANN.0, WATCH, true).await.status() == StatusCode::OK
    })
    .await;
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_watches_of_one_token_leave_those_of_others_behind_the_same_address() {
    let stage = stage().await;
    let greedy = take(&stage, ANN, FORWARDED, BOUND).await;
    assert_eq!(greedy.len(), SHARE);
    let others = take(&stage, BOB, FORWARDED, 1).await;
    assert_eq!(others.len(), 1);
    // The gateway does not review the tokens of forwarded requests; it counts per token.
    let reviews = "kube_fanout_authentication_reviews_total";
    assert_eq!(stage.metric(reviews, &[]).await, 0.0);
    drop((greedy, others));
    stage.ended().await;
}

/// A watch counts against the share of the caller, not of the impersonated user; otherwise a caller could exhaust another user's share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_fills_the_share_of_somebody_whom_it_impersonates() {
    let stage = stage().await;
    let rule = json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]});
    stage.allow("ann-acts", "ann", rule, "").await;
    let taken = take(&stage, (ANN.0, "bob"), WATCH, BOUND).await;
    assert_eq!(taken.len(), SHARE);
    assert_eq!(take(&stage, ANN, WATCH, 1).await.len(), 0);
    assert_eq!(take(&stage, BOB, WATCH, 1).await.len(), 1);
    drop(taken);
    stage.ended().await;
}
