//! Which reviews are sent for a token, and which responses authenticate a user.

use http::HeaderName;

use super::*;
use crate::auth::tests::{Stage, response};
use crate::metrics::Metrics;

fn audiences(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn verdict(status: &str, wanted: &[&str]) -> TokenVerdict {
    let review = format!(r#"{{"spec":{{}},"status":{status}}}"#);
    let answer = serde_json::from_str(&review).unwrap();
    reviewed(answer, &audiences(wanted))
}

#[test]
fn a_review_that_knows_the_user_makes_it_known() {
    let status = r#"{"authenticated":true,"user":{"username":"alice","uid":"7","groups":["a"],"extra":{"k":["v"]}}}"#;
    let user = verdict(status, &[]).unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("alice", "7"));
    assert_eq!(user.groups, ["a", "system:authenticated"]);
    assert_eq!(user.extra["k"], ["v"]);
}

#[test]
fn audiences_must_be_confirmed() {
    let of =
        |named: &str| format!(r#"{{"authenticated":true,"user":{{"username":"alice"}}{named}}}"#);
    let rows: [(&str, &[&str], bool); 8] = [
        ("", &[], true),
        (r#","audiences":["other"]"#, &[], true),
        (r#","audiences":["a"]"#, &["a"], true),
        (r#","audiences":["x","b"]"#, &["a", "b"], true),
        (r#","audiences":["other"]"#, &["a"], false),
        (r#","audiences":[]"#, &["a"], false),
        (r#","audiences":null"#, &["a"], false),
        ("", &["a"], false),
    ];
    for (named, wanted, expected) in rows {
        let user = verdict(&of(named), wanted).unwrap();
        assert_eq!(user.is_some(), expected, "{named} {wanted:?}");
    }
}

#[test]
fn token_reviews_without_a_user_are_refused() {
    for status in [
        "{}",
        r#"{"authenticated":false}"#,
        r#"{"authenticated":null}"#,
        r#"{"error":"token has expired"}"#,
        r#"{"authenticated":false,"user":{"username":"alice"}}"#,
    ] {
        assert_eq!(verdict(status, &[]), Ok(None), "{status}");
    }
    for status in [
        "null",
        r#"{"authenticated":true}"#,
        r#"{"authenticated":true,"user":null}"#,
        r#"{"authenticated":true,"user":{}}"#,
        r#"{"authenticated":true,"user":{"username":"","groups":["system:masters"]}}"#,
    ] {
        let refused = verdict(status, &[]);
        assert!(
            matches!(refused, Err(ReviewError::Malformed { .. })),
            "{status}"
        );
    }
}

#[test]
fn a_caller_whom_upstream_takes_for_anonymous_has_no_good_token() {
    let verdict = |status: &str| {
        let review = format!(r#"{{"status":{status}}}"#);
        self_reviewed(serde_json::from_str(&review).unwrap())
    };
    let user = verdict(r#"{"userInfo":{"username":"alice"}}"#)
        .unwrap()
        .unwrap();
    assert_eq!(user.groups, ["system:authenticated"]);
    let nobody = verdict(r#"{"userInfo":{"username":"system:anonymous"}}"#);
    assert_eq!(nobody, Ok(None));
    for status in [
        "null",
        "{}",
        r#"{"userInfo":{}}"#,
        r#"{"userInfo":{"username":""}}"#,
    ] {
        let refused = verdict(status);
        assert!(
            matches!(refused, Err(ReviewError::Malformed { .. })),
            "{status}"
        );
    }
}

async fn review(stage: &Stage, method: TokenReviewMethod) -> TokenVerdict {
    let tokens = UpstreamTokens::new(
        Arc::new(Reviewer::new(stage.client.clone())),
        method,
        Metrics::new().unwrap().authentication(),
    );
    let token = BearerToken::new("of-alice").unwrap();
    tokens
        .authenticate(&token, ReviewPurpose::Authentication)
        .await
}

fn has_header(request: &str, name: HeaderName) -> bool {
    request.to_lowercase().contains(&format!("\r\n{name}:"))
}

#[tokio::test]
async fn the_gateway_asks_about_the_token_in_its_own_name() {
    let answer = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{},
        "status":{"authenticated":true,"audiences":["a"],"user":{"username":"alice"}}}"#;
    let stage = Stage::new(move |_| response("201 Created", answer)).await;
    let method = TokenReviewMethod::TokenReview {
        audiences: audiences(&["a", "b"]),
    };
    let user = review(&stage, method).await.unwrap().unwrap();
    assert_eq!(user.name, "alice");
    let request = &stage.requests()[0];
    assert!(request.starts_with("POST /apis/authentication.k8s.io/v1/tokenreviews "));
    assert!(
        request.contains(r#""spec":{"audiences":["a","b"],"token":"of-alice"}"#),
        "{request}"
    );
    assert!(!has_header(request, http::header::AUTHORIZATION));
}

#[tokio::test]
async fn the_caller_asks_about_itself_with_its_token() {
    let answer = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview",
        "status":{"userInfo":{"username":"alice"}}}"#;
    let stage = Stage::new(move |_| response("201 Created", answer)).await;
    let user = review(&stage, TokenReviewMethod::SelfSubjectReview).await;
    assert_eq!(user.unwrap().unwrap().name, "alice");
    let request = &stage.requests()[0];
    assert!(request.starts_with("POST /apis/authentication.k8s.io/v1/selfsubjectreviews "));
    assert!(
        request.contains("\r\nauthorization: Bearer of-alice\r\n"),
        "{request}"
    );
}

#[tokio::test]
async fn a_refusal_of_the_token_is_an_answer_and_one_of_the_gateway_is_not() {
    let stage = Stage::new(|_| response("401 Unauthorized", "")).await;
    let own = review(&stage, TokenReviewMethod::SelfSubjectReview).await;
    assert_eq!(own, Ok(None));
    let audiences = Vec::new();
    let of_gateway = review(&stage, TokenReviewMethod::TokenReview { audiences }).await;
    assert_eq!(of_gateway, Err(ReviewError::Unauthorized));
    let stage = Stage::new(|_| response("403 Forbidden", "")).await;
    let forbidden = review(&stage, TokenReviewMethod::SelfSubjectReview).await;
    assert_eq!(forbidden, Err(ReviewError::SelfReviewForbidden));
    let audiences = Vec::new();
    let of_gateway = review(&stage, TokenReviewMethod::TokenReview { audiences }).await;
    assert!(matches!(of_gateway, Err(ReviewError::Forbidden { .. })));
}
