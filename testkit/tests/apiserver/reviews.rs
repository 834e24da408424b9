//! Reviews are counted, and fail as tests order them to.

use kube_fanout_testkit::apiserver::reviews::{Review, ReviewTotals};

use super::auth::*;
use super::*;

#[tokio::test(start_paused = true)]
async fn served_reviews_are_counted_by_what_they_are_about() {
    let bench = bench().await;
    let pods = json!({"verb": "list", "resource": "pods", "namespace": "a"});
    let of_ann = json!({"user": "ann", "resourceAttributes": pods});
    for token in [ANN, ANN, "nope"] {
        let (code, _) = bench
            .review(REVIEWER, TOKEN_REVIEWS, json!({"token": token}))
            .await;
        assert_eq!(code, 201);
    }
    bench.review(REVIEWER, ACCESS_REVIEWS, of_ann.clone()).await;
    // Refused reviews are not counted.
    bench.review(ANN, ACCESS_REVIEWS, of_ann).await;
    bench.review(ANN, SELF_REVIEWS, json!(null)).await;
    let itself = json!({"resourceAttributes": pods});
    bench.review(ANN, SELF_ACCESS_REVIEWS, itself.clone()).await;
    bench.review(ANN, SELF_ACCESS_REVIEWS, itself).await;
    let counts = bench.server.reviews();
    let expected = ReviewTotals {
        token: 3,
        self_subject: 1,
        subject_access: 1,
        local_subject_access: 0,
        self_subject_access: 2,
        self_subject_rules: 0,
    };
    assert_eq!(counts.totals(), expected);
    assert_eq!(
        (counts.of(Review::Token, ANN), counts.of(Review::Token, BOB)),
        (2, 0)
    );
    assert_eq!(
        (
            counts.subject_count(Review::Token),
            counts.most(Review::Token)
        ),
        (2, 2)
    );
    let question = "ann list//pods//a/";
    assert_eq!(counts.of(Review::SubjectAccess, question), 1);
    assert_eq!(counts.of(Review::SelfSubjectAccess, question), 2);
    assert_eq!(counts.of(Review::SelfSubject, "ann"), 1);
    let (_, page) = bench.client.get("/debug/faults").await;
    assert_eq!(page["reviews"]["selfSubjectAccess"], 2);
    for shown in [format!("{counts:?}"), page.to_string()] {
        assert!(!shown.contains(ANN), "{shown}");
    }
    counts.reset();
    assert_eq!(counts.totals(), ReviewTotals::default());
}

#[tokio::test(start_paused = true)]
async fn reviews_fail_as_ordered_and_nothing_else_does() {
    let bench = bench().await;
    let spec = json!({"token": ANN});
    let ask = || {
        bench.send_as(
            REVIEWER,
            "POST",
            TOKEN_REVIEWS,
            r#"{"spec":{"token":"ann-token"}}"#,
        )
    };
    bench
        .order_json(json!({"fault": {"refuse": {"code": 503}}, "resource": "reviews"}))
        .await;
    assert_eq!(bench.code(ADMIN, PODS).await, 200);
    assert_eq!(ask().await.status(), StatusCode::SERVICE_UNAVAILABLE);
    bench
        .order_json(json!({"fault": {"delay": {"delayMs": 1}}, "resource": "tokenreviews"}))
        .await;
    assert_eq!(ask().await.status(), StatusCode::CREATED);
    assert_eq!(bench.server.fault_counts().delayed, 1);
    bench.order_json(json!({"fault": "breakOff"})).await;
    assert_eq!(bench.code(ADMIN, PODS).await, 200);
    let request = Request::builder()
        .method("POST")
        .uri(TOKEN_REVIEWS)
        .header("Authorization", format!("Bearer {REVIEWER}"))
        .body(Full::new(json!({"spec": spec}).to_string().into()))
        .unwrap();
    assert!(bench.client.exchange(request).await.is_err());
    assert_eq!(bench.server.fault_counts().broken, 1);
    assert_eq!(ask().await.status(), StatusCode::CREATED);
}

#[tokio::test(start_paused = true)]
async fn reviews_are_answered_with_nonsense_as_ordered() {
    let bench = bench().await;
    let orders = [
        json!("empty"),
        json!("notJson"),
        json!("truncated"),
        json!("wrongKind"),
        json!("noStatus"),
        json!("statusText"),
        json!("text"),
        json!("contradiction"),
        json!("noName"),
        json!({"oversized": {"len": 5_000_000}}),
        json!({"deep": {"depth": 100_000}}),
    ];
    for nonsense in &orders {
        for (token, target, spec) in [
            (REVIEWER, TOKEN_REVIEWS, json!({"token": ANN})),
            (ANN, SELF_REVIEWS, json!(null)),
            (
                ANN,
                SELF_ACCESS_REVIEWS,
                json!({"resourceAttributes": {"verb": "list", "resource": "pods"}}),
            ),
        ] {
            let body = json!({"spec": spec}).to_string();
            let valid = bench.send_as(token, "POST", target, &body).await;
            bench
                .order_json(json!({"fault": {"nonsense": nonsense}}))
                .await;
            let response = bench.send_as(token, "POST", target, &body).await;
            assert_eq!(response.status(), StatusCode::CREATED, "{nonsense}");
            assert_ne!(response.body(), valid.body(), "{nonsense} {target}");
        }
    }
    assert_eq!(
        bench.server.fault_counts().nonsense,
        3 * orders.len() as u64
    );
    // The fault changes successful responses only: a refused review stays refused.
    bench
        .order_json(json!({"fault": {"nonsense": "text"}}))
        .await;
    let (code, _) = bench.review(REVIEWER, TOKEN_REVIEWS, json!({})).await;
    assert_eq!(code, 400);
}
