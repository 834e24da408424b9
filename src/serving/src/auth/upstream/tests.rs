//! Which requests a reviewer sends, in whose name, and which responses it accepts.

use http::HeaderMap;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};

use super::*;
use crate::auth::tests::{Stage, response};
use crate::upstream::client::ConnectSource;

fn review() -> TokenReview {
    TokenReview {
        spec: TokenReviewSpec {
            token: "of-somebody".to_owned(),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    }
}

async fn ask(stage: &Stage, identity: ReviewIdentity<'_>) -> Result<TokenReview, ReviewError> {
    let reviewer = Reviewer::new(stage.client.clone());
    reviewer
        .create(ReviewPurpose::Authentication, identity, &review())
        .await
}

const YES: &str = r#"{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{},"status":{"authenticated":true}}"#;

#[tokio::test]
async fn a_review_is_created_and_comes_back_filled_in() {
    let stage = Stage::new(|_| response("201 Created", YES)).await;
    let answer = ask(&stage, ReviewIdentity::Gateway).await.unwrap();
    let expected = TokenReviewStatus {
        authenticated: Some(true),
        ..TokenReviewStatus::default()
    };
    assert_eq!(answer.status, Some(expected));
    let requests = stage.requests();
    assert!(
        requests[0].starts_with("POST /apis/authentication.k8s.io/v1/tokenreviews HTTP/1.1\r\n")
    );
    assert!(requests[0].contains(r#""token":"of-somebody""#));
    assert!(!requests[0].to_lowercase().contains("\r\nauthorization:"));
}

#[tokio::test]
async fn the_caller_asks_with_its_own_credentials_and_nothing_else_of_its_request() {
    let stage = Stage::new(|_| response("201 Created", YES)).await;
    let token = BearerToken::from_authorization(HeaderValue::from_static("Bearer mine"));
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("impersonate-user", "other"),
        ("impersonate-extra-scopes", "a"),
        ("impersonate-extra-scopes", "b"),
        ("x-remote-user", "admin"),
        ("authorization", "Bearer somebody-else"),
        ("host", "elsewhere"),
        ("content-length", "7"),
        ("connection", "impersonate-user"),
    ] {
        headers.append(name, HeaderValue::from_static(value));
    }
    let identity = ReviewIdentity::Caller {
        token: Some(&token),
        impersonation: &headers,
    };
    ask(&stage, identity).await.unwrap();
    let request = stage.requests()[0].to_lowercase();
    for line in [
        "authorization: bearer mine",
        "impersonate-user: other",
        "impersonate-extra-scopes: a",
        "impersonate-extra-scopes: b",
    ] {
        assert!(
            request.contains(&format!("\r\n{line}\r\n")),
            "{line}: {request}"
        );
    }
    for word in ["x-remote-user", "somebody-else", "elsewhere", "connection"] {
        assert!(!request.contains(word), "{word}: {request}");
    }
}

#[tokio::test]
async fn the_gateway_impersonates_whom_it_asks_for() {
    let stage = Stage::new(|_| response("201 Created", YES)).await;
    let user = User {
        name: "alice".to_owned(),
        groups: vec!["devs".to_owned(), "system:authenticated".to_owned()],
        ..User::default()
    };
    ask(&stage, ReviewIdentity::Impersonated(&user))
        .await
        .unwrap();
    let request = stage.requests()[0].to_lowercase();
    assert!(request.contains("\r\nimpersonate-user: alice\r\n"));
    assert!(request.contains("\r\nimpersonate-group: devs\r\n"));
    assert!(!request.contains("system:authenticated"));
    let nobody = User::default();
    let refused = ask(&stage, ReviewIdentity::Impersonated(&nobody)).await;
    assert!(matches!(refused, Err(ReviewError::Unsendable(_))));
    assert_eq!(stage.requests().len(), 1);
}

#[tokio::test]
async fn other_responses_to_a_review_are_errors() {
    let long = format!(r#"{{"message":"{}"}}"#, "x".repeat(5000));
    let forbidden = |message: &str| ReviewError::Forbidden {
        message: message.to_owned(),
    };
    let status = |code: &str| unavailable(format!("status {code}"));
    let rows = [
        ("401 Unauthorized", YES, ReviewError::Unauthorized),
        ("403 Forbidden", r#"{"message":"no"}"#, forbidden("no")),
        ("403 Forbidden", "no", forbidden("")),
        ("403 Forbidden", &long, forbidden(&"x".repeat(1024))),
        ("500 Internal Server Error", YES, status("500")),
        ("404 Not Found", YES, status("404")),
        ("429 Too Many Requests", YES, status("429")),
        ("302 Found", YES, status("302")),
    ];
    for (line, body, expected) in rows {
        let (line, body) = (line.to_owned(), body.to_owned());
        let stage = Stage::new(move |_| response(&line, &body)).await;
        let refused = ask(&stage, ReviewIdentity::Gateway).await;
        assert_eq!(refused, Err(expected));
    }
}

#[tokio::test]
async fn a_review_that_is_forbidden_says_whose_right_is_missing() {
    let stage = Stage::new(|_| response("403 Forbidden", "no")).await;
    let user = User {
        name: "alice".to_owned(),
        ..User::default()
    };
    let token = BearerToken::new("mine").unwrap();
    let caller = ReviewIdentity::Caller {
        token: Some(&token),
        impersonation: &HeaderMap::new(),
    };
    for identity in [caller, ReviewIdentity::Impersonated(&user)] {
        let refused = ask(&stage, identity).await;
        assert_eq!(refused, Err(ReviewError::SelfReviewForbidden));
    }
    let refused = ask(&stage, ReviewIdentity::Gateway).await;
    assert!(matches!(refused, Err(ReviewError::Forbidden { .. })));
}

#[tokio::test]
async fn malformed_reviews_are_errors() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for body in [
        "",
        "{",
        "null",
        "[]",
        "OK",
        r#"{"kind":"Status","apiVersion":"v1"}"#,
        r#"{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1"}"#,
        r#"{"kind":"SubjectAccessReview","apiVersion":"authentication.k8s.io/v1"}"#,
        r#"{"status":{"authenticated":"true"}}"#,
        r#"{"status":{"authenticated":1}}"#,
        r#"{"status":{"user":{"groups":"system:masters"}}}"#,
        r#"{"status":{"user":{"extra":{"a":"b"}}}}"#,
        &deep,
    ] {
        let body = body.to_owned();
        let shown = body.chars().take(80).collect::<String>();
        let stage = Stage::new(move |_| response("201 Created", &body)).await;
        let refused = ask(&stage, ReviewIdentity::Gateway).await;
        assert!(
            matches!(refused, Err(ReviewError::Malformed { .. })),
            "{shown}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let endless = "HTTP/1.1 201 Created\r\n\r\n".to_owned() + &" ".repeat(ANSWER_LEN_MAX + 1);
    let stage = Stage::new(move |_| Some(endless.clone())).await;
    let refused = ask(&stage, ReviewIdentity::Gateway).await;
    assert!(matches!(refused, Err(ReviewError::Unavailable { .. })));
}

#[tokio::test]
async fn no_answer_is_an_error_in_time() {
    // The paused clock jumps to the next timer when all tasks wait, so it is paused only after the request has arrived.
    let (sent, request) = tokio::sync::oneshot::channel();
    let sent = std::sync::Mutex::new(Some(sent));
    let stage = Stage::new(move |_| {
        let _ = sent.lock().unwrap().take().unwrap().send(());
        None
    })
    .await;
    let asking = tokio::spawn(async move { ask(&stage, ReviewIdentity::Gateway).await });
    request.await.unwrap();
    tokio::time::pause();
    let refused = asking.await.unwrap();
    assert_eq!(refused, Err(unavailable("the review timed out".to_owned())));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error() {
    let stage = Stage::new(|_| Some(String::new())).await;
    let refused = ask(&stage, ReviewIdentity::Gateway).await;
    assert!(matches!(refused, Err(ReviewError::Unavailable { .. })));
}

#[tokio::test]
async fn a_gateway_that_acts_as_somebody_itself_impersonates_nobody_else() {
    let stage = Stage::new(|_| response("201 Created", YES)).await;
    let name = format!("kube-fanout-{}-nested.kubeconfig", std::process::id());
    let path = std::env::temp_dir().join(name);
    let text = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "own",
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
        "users": [{"name": "own", "user": {"token": "own", "as": "boss"}}],
        "clusters": [{"name": "own", "cluster": {"server": stage.url}}],
    });
    std::fs::write(&path, text.to_string()).unwrap();
    let source = ConnectSource::kubeconfig(&path);
    let client = Client::connect(source).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let reviewer = Reviewer::new(client);
    let review = review();
    let ask = |identity| reviewer.create(ReviewPurpose::Authorization, identity, &review);
    let user = User {
        name: "alice".to_owned(),
        ..User::default()
    };
    let refused = ask(ReviewIdentity::Impersonated(&user)).await;
    assert!(
        matches!(refused, Err(ReviewError::Unavailable { .. })),
        "{refused:?}"
    );
    assert!(stage.requests().is_empty());
    ask(ReviewIdentity::Gateway).await.unwrap();
    assert!(stage.requests()[0].contains("\r\nimpersonate-user: boss\r\n"));
}
