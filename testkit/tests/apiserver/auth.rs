//! Authentication, RBAC and reviews. The expected responses are those of kube-apiserver.

use kube_fanout_testkit::apiserver::auth::{AuthOptions, TokenUser, Tokens, User};

use super::*;

pub(super) const ADMIN: &str = "admin-token";
pub(super) const ANN: &str = "ann-token";
pub(super) const BOB: &str = "bob-token";
pub(super) const REVIEWER: &str = "reviewer-token";
pub(super) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
pub(super) const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
pub(super) const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
pub(super) const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
pub(super) const SELF_ACCESS_REVIEWS: &str =
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

pub(super) fn tokens() -> Tokens {
    let bob = TokenUser {
        user: User {
            name: "bob".into(),
            uid: "b-1".into(),
            groups: vec!["dev".into()],
            extra: [("team".to_owned(), vec!["x".to_owned()])].into(),
        },
        audiences: vec!["gateway".into(), "other".into()],
    };
    [
        (ADMIN, TokenUser::new("root", &["system:masters"])),
        (ANN, TokenUser::new("ann", &["dev"])),
        (BOB, bob),
        (REVIEWER, TokenUser::new("gateway", &[])),
    ]
    .into_iter()
    .collect()
}

pub(super) async fn bench() -> Bench {
    let options = Options {
        auth: Some(AuthOptions {
            tokens: tokens(),
            ..AuthOptions::default()
        }),
        ..Options::default()
    };
    let bench = Bench::with(options);
    let delegator = binding("gateway", "system:auth-delegator", "User", "gateway");
    bench
        .create(&format!("{RBAC}/clusterrolebindings"), delegator)
        .await;
    bench
}

pub(super) fn role(name: &str, verbs: &[&str], group: &str, resource: &str) -> Value {
    let rule = json!({"verbs": verbs, "apiGroups": [group], "resources": [resource]});
    json!({"metadata": {"name": name}, "rules": [rule]})
}

pub(super) fn binding(name: &str, role: &str, kind: &str, subject: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": kind, "name": subject}],
    })
}

impl Bench {
    /// Sends a request with a bearer token; an empty token sends no credential.
    pub(super) async fn send_as(
        &self,
        token: &str,
        method: &str,
        target: &str,
        body: &str,
    ) -> Response<Bytes> {
        let mut request = Request::builder().method(method).uri(target);
        if !token.is_empty() {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body.to_owned().into())).unwrap();
        collected(self.client.exchange(request).await.unwrap()).await
    }

    pub(super) async fn code(&self, token: &str, target: &str) -> u16 {
        self.send_as(token, "GET", target, "")
            .await
            .status()
            .as_u16()
    }

    pub(super) async fn create(&self, target: &str, object: Value) {
        let response = self
            .send_as(ADMIN, "POST", target, &object.to_string())
            .await;
        assert_eq!(
            response.status(),
            StatusCode::CREATED,
            "{:?}",
            response.body()
        );
    }

    async fn delete(&self, target: &str) {
        let response = self.send_as(ADMIN, "DELETE", target, "").await;
        assert_eq!(response.status(), StatusCode::OK, "{:?}", response.body());
    }

    /// Creates a review; returns the response's code and body.
    pub(super) async fn review(&self, token: &str, target: &str, spec: Value) -> (u16, Value) {
        let body = json!({"spec": spec}).to_string();
        let response = self.send_as(token, "POST", target, &body).await;
        (response.status().as_u16(), value(&response))
    }
}

/// The expected responses and headers are those of the recorded exchanges 90 to 93 with a real server.
#[tokio::test(start_paused = true)]
async fn refusals_are_a_real_server_s() {
    let bench = bench().await;
    let unauthorized = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
    let list = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"","reason":"Forbidden","details":{"kind":"pods"},"code":403}"#;
    let watch = list.replace("list", "watch");
    let anonymous = list.replace(r#"\"ann\""#, r#"\"system:anonymous\""#);
    let watch_target = format!("{PODS}?watch=true");
    let rows = [
        ("nope", PODS, 401, unauthorized, false),
        (ANN, PODS, 403, list, true),
        (ANN, watch_target.as_str(), 403, watch.as_str(), true),
        ("", PODS, 403, anonymous.as_str(), true),
    ];
    for (token, target, code, body, nosniff) in rows {
        let response = bench.send_as(token, "GET", target, "").await;
        let body = format!("{body}\n");
        assert_eq!(response.status().as_u16(), code, "{token} {target}");
        assert_eq!(response.body(), body.as_bytes(), "{token} {target}");
        let headers = response.headers();
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["cache-control"], "no-cache, private");
        assert_eq!(headers["content-length"], body.len().to_string().as_str());
        assert_eq!(headers["audit-id"].len(), 36);
        assert_eq!(headers.contains_key("x-content-type-options"), nosniff);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_refused_in_the_api_server_s_order_and_words() {
    let bench = bench().await;
    let denied = |what: &str| format!(r#"{what} at the cluster scope"#);
    let rows = [
        // A caller without permission does not learn whether a resource exists.
        ("GET", "/api/v1/nopes", denied(r#"nopes is forbidden: User "ann" cannot list resource "nopes" in API group """#)),
        ("GET", "/apis/example.com/v1/widgets/w", denied(r#"widgets.example.com "w" is forbidden: User "ann" cannot get resource "widgets" in API group "example.com""#)),
        ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", denied(r#"pods "p" is forbidden: User "ann" cannot list resource "pods" in API group """#)),
        ("PATCH", "/api/v1/namespaces/a/pods/p/status", r#"pods "p" is forbidden: User "ann" cannot patch resource "pods/status" in API group "" in the namespace "a""#.into()),
        ("DELETE", "/api/v1/nodes", denied(r#"nodes is forbidden: User "ann" cannot deletecollection resource "nodes" in API group """#)),
        ("GET", "/metrics", r#"forbidden: User "ann" cannot get path "/metrics""#.into()),
        ("POST", "/version", r#"forbidden: User "ann" cannot post path "/version""#.into()),
        ("GET", "/api/v1/namespaces/%3Cb%3E/pods", r#"pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "&lt;b&gt;""#.into()),
    ];
    for (method, target, message) in rows {
        let response = bench.send_as(ANN, method, target, "").await;
        check_refused(&response, 403, &message);
    }
    assert_eq!(bench.code("nope", "/api/v1/nopes").await, 401);
    assert_eq!(bench.code(ADMIN, "/api/v1/nopes").await, 404);
}

#[tokio::test(start_paused = true)]
async fn who_may_read_what_is_public_and_what_is_discovery() {
    let bench = bench().await;
    for (target, anonymous) in [
        ("/healthz", 200),
        ("/livez", 200),
        ("/readyz", 200),
        ("/version", 200),
        ("/api", 403),
        ("/apis", 403),
        ("/apis/apps/v1", 403),
        ("/api/v1/pods", 403),
    ] {
        assert_eq!(bench.code("", target).await, anonymous, "{target}");
        let known = if target == "/api/v1/pods" { 403 } else { 200 };
        assert_eq!(bench.code(ANN, target).await, known, "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_is_in_force_when_its_write_is_answered() {
    let bench = bench().await;
    let (roles, bindings) = (
        format!("{RBAC}/clusterroles"),
        format!("{RBAC}/clusterrolebindings"),
    );
    let own = format!("{RBAC}/namespaces/default/rolebindings");
    for round in 0..3 {
        assert_eq!(bench.code(ANN, PODS).await, 403, "{round}");
        bench
            .create(&bindings, binding("all", "pods", "Group", "dev"))
            .await;
        let missing = r#"pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "default": RBAC: clusterrole.rbac.authorization.k8s.io "pods" not found"#;
        check_refused(&bench.send_as(ANN, "GET", PODS, "").await, 403, missing);
        bench
            .create(&roles, role("pods", &["list"], "", "pods"))
            .await;
        assert_eq!(bench.code(ANN, PODS).await, 200, "{round}");
        assert_eq!(bench.code(ANN, "/api/v1/pods").await, 200, "{round}");
        bench.delete(&format!("{bindings}/all")).await;
        assert_eq!(bench.code(ANN, PODS).await, 403, "{round}");
        bench
            .create(&own, binding("own", "pods", "User", "ann"))
            .await;
        assert_eq!(bench.code(ANN, PODS).await, 200, "{round}");
        assert_eq!(bench.code(ANN, "/api/v1/pods").await, 403, "{round}");
        let remove_subjects = r#"[{"op":"remove","path":"/subjects"}]"#;
        let request = Request::builder()
            .method("PATCH")
            .uri(format!("{own}/own"))
            .header("Authorization", format!("Bearer {ADMIN}"))
            .header(CONTENT_TYPE, "application/json-patch+json")
            .body(Full::new(remove_subjects.into()))
            .unwrap();
        let patched = bench.client.exchange(request).await.unwrap();
        assert_eq!(patched.status(), StatusCode::OK);
        assert_eq!(bench.code(ANN, PODS).await, 403, "{round}");
        bench.delete(&format!("{own}/own")).await;
        bench.delete(&format!("{roles}/pods")).await;
    }
}

/// A role that cannot be parsed allows nothing, even if its previous version did.
#[tokio::test(start_paused = true)]
async fn a_role_that_makes_no_sense_allows_nothing() {
    let bench = bench().await;
    let roles = format!("{RBAC}/clusterroles");
    bench
        .create(&roles, role("pods", &["list"], "", "pods"))
        .await;
    let bound = binding("all", "pods", "Group", "dev");
    bench
        .create(&format!("{RBAC}/clusterrolebindings"), bound)
        .await;
    assert_eq!(bench.code(ANN, PODS).await, 200);
    let nonsense = json!({"metadata": {"name": "pods"}, "rules": "all"}).to_string();
    let put = bench
        .send_as(ADMIN, "PUT", &format!("{roles}/pods"), &nonsense)
        .await;
    assert_eq!(put.status(), StatusCode::OK);
    assert_eq!(bench.code(ANN, PODS).await, 403);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_good_until_it_is_removed() {
    let bench = bench().await;
    assert_eq!(bench.code("new", "/api").await, 401);
    bench
        .server
        .tokens()
        .put("new", TokenUser::new("eve", &["system:masters"]));
    assert_eq!(bench.code("new", PODS).await, 200);
    assert!(bench.server.tokens().remove("new"));
    assert_eq!(bench.code("new", PODS).await, 401);
    assert_eq!(format!("{:?}", bench.server.tokens()), "Tokens(4)");
}

#[tokio::test(start_paused = true)]
async fn a_token_review_tells_whom_a_token_stands_for() {
    let bench = bench().await;
    let own = json!(["https://kubernetes.default.svc"]);
    let ann = json!({"username": "ann", "groups": ["dev", "system:authenticated"]});
    let bob = json!({"username": "bob", "uid": "b-1", "groups": ["dev", "system:authenticated"], "extra": {"team": ["x"]}});
    let bad = json!({"user": {}, "error": "invalid bearer token"});
    let good = |user: &Value, audiences: Value| json!({"authenticated": true, "user": user, "audiences": audiences});
    let rows = [
        (json!({"token": ANN}), good(&ann, own.clone())),
        (
            json!({"token": ANN, "audiences": ["x", own[0]]}),
            good(&ann, own),
        ),
        (json!({"token": ANN, "audiences": ["gateway"]}), bad.clone()),
        (json!({"token": BOB}), bad.clone()),
        (
            json!({"token": BOB, "audiences": ["x", "other", "gateway"]}),
            good(&bob, json!(["other", "gateway"])),
        ),
        (json!({"token": "nope"}), bad),
    ];
    for (spec, status) in rows {
        let (code, response) = bench.review(REVIEWER, TOKEN_REVIEWS, spec.clone()).await;
        assert_eq!(code, 201, "{spec}: {response}");
        let expected = json!({
            "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
            "spec": spec, "status": status,
        });
        assert_eq!(response, expected, "{spec}");
    }
    // The API server does not accept a token for other audiences.
    assert_eq!(bench.code(BOB, "/api").await, 401);
    let (code, response) = bench.review(REVIEWER, TOKEN_REVIEWS, json!({})).await;
    let message = "token is required for TokenReview in authentication";
    assert_eq!((code, &response["message"]), (400, &message.into()));
}

#[tokio::test(start_paused = true)]
async fn a_self_subject_review_tells_who_asks() {
    let bench = bench().await;
    let response = bench.send_as(ANN, "POST", SELF_REVIEWS, "{}").await;
    assert_eq!(response.status(), StatusCode::CREATED);
    let body = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"status":{"userInfo":{"username":"ann","groups":["dev","system:authenticated"]}}}"#;
    assert_eq!(response.body(), format!("{body}\n").as_bytes());
    let anonymous = bench.send_as("", "POST", SELF_REVIEWS, "{}").await;
    assert_eq!(anonymous.status(), StatusCode::FORBIDDEN);
}

#[tokio::test(start_paused = true)]
async fn an_access_review_tells_what_a_user_may_do() {
    let bench = bench().await;
    let roles = format!("{RBAC}/clusterroles");
    bench
        .create(&roles, role("pods", &["list", "watch"], "", "pods"))
        .await;
    let own = format!("{RBAC}/namespaces/a/rolebindings");
    bench
        .create(&own, binding("own", "pods", "Group", "dev"))
        .await;
    let pods = |namespace: &str| json!({"verb": "list", "resource": "pods", "version": "v1", "namespace": namespace});
    let reason = r#"RBAC: allowed by RoleBinding "own/a" of ClusterRole "pods" to Group "dev""#;
    let allowed = json!({"allowed": true, "reason": reason});
    let denied = json!({"allowed": false});
    let spec_of_zoe = |groups: &[&str], attributes: Value| json!({"user": "zoe", "groups": groups, "resourceAttributes": attributes});
    let rows = [
        (spec_of_zoe(&["dev"], pods("a")), allowed.clone()),
        (spec_of_zoe(&["dev"], pods("b")), denied.clone()),
        (spec_of_zoe(&["dev"], pods("")), denied.clone()),
        (spec_of_zoe(&[], pods("a")), denied.clone()),
        (
            spec_of_zoe(&["system:masters"], pods("b")),
            json!({"allowed": true}),
        ),
        (
            json!({"groups": ["dev"], "resourceAttributes": pods("a")}),
            allowed.clone(),
        ),
        (
            json!({"user": "x", "groups": ["system:unauthenticated"], "nonResourceAttributes": {"verb": "get", "path": "/healthz"}}),
            json!({"allowed": true, "reason": r#"RBAC: allowed by ClusterRoleBinding "system:public-info-viewer" of ClusterRole "system:public-info-viewer" to Group "system:unauthenticated""#}),
        ),
    ];
    for (spec, status) in rows {
        let (code, response) = bench.review(REVIEWER, ACCESS_REVIEWS, spec.clone()).await;
        assert_eq!((code, &response["status"]), (201, &status), "{spec}");
    }
    let itself = json!({"resourceAttributes": pods("a")});
    let (_, response) = bench.review(ANN, SELF_ACCESS_REVIEWS, itself.clone()).await;
    assert_eq!(response["status"], allowed);
    let (_, response) = bench.review(REVIEWER, SELF_ACCESS_REVIEWS, itself).await;
    assert_eq!(response["status"], denied);
    let local = "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews";
    let (code, response) = bench
        .review(ADMIN, local, spec_of_zoe(&["dev"], pods("a")))
        .await;
    assert_eq!((code, &response["status"]), (201, &allowed));
    let (code, _) = bench
        .review(ADMIN, local, spec_of_zoe(&["dev"], pods("b")))
        .await;
    assert_eq!(code, 422);
}

#[tokio::test(start_paused = true)]
async fn reviews_are_created_by_those_who_may_and_nothing_else() {
    let bench = bench().await;
    let attributes =
        json!({"user": "x", "resourceAttributes": {"verb": "list", "resource": "pods"}});
    for (token, target, spec, code) in [
        (ANN, TOKEN_REVIEWS, json!({"token": ANN}), 403),
        (ANN, ACCESS_REVIEWS, attributes.clone(), 403),
        (REVIEWER, TOKEN_REVIEWS, json!({"token": ANN}), 201),
        (REVIEWER, ACCESS_REVIEWS, attributes.clone(), 201),
        (REVIEWER, ACCESS_REVIEWS, json!({"user": "x"}), 422),
        (
            REVIEWER,
            ACCESS_REVIEWS,
            json!({"resourceAttributes": {}}),
            422,
        ),
        (REVIEWER, ACCESS_REVIEWS, json!({"user": 7}), 400),
        ("nope", SELF_ACCESS_REVIEWS, attributes.clone(), 401),
        ("", SELF_ACCESS_REVIEWS, attributes, 403),
    ] {
        let (status, response) = bench.review(token, target, spec.clone()).await;
        assert_eq!(status, code, "{token} {target} {spec}: {response}");
    }
    for (method, target, code) in [
        ("GET", TOKEN_REVIEWS, 405),
        ("DELETE", ACCESS_REVIEWS, 405),
        ("GET", &format!("{TOKEN_REVIEWS}/x"), 404),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/localsubjectaccessreviews",
            404,
        ),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/namespaces/a/subjectaccessreviews",
            404,
        ),
        ("GET", "/apis/authentication.k8s.io/v1/nopes", 404),
    ] {
        let response = bench.send_as(ADMIN, method, target, "{}").await;
        assert_eq!(response.status().as_u16(), code, "{method} {target}");
    }
    let response = value(
        &bench
            .send_as(ANN, "GET", "/apis/authorization.k8s.io/v1", "")
            .await,
    );
    let resources: Vec<_> = response["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["name"].as_str().unwrap(),
                one["namespaced"].as_bool().unwrap(),
                &one["verbs"],
            )
        })
        .collect();
    let create = json!(["create"]);
    assert_eq!(
        resources,
        [
            ("localsubjectaccessreviews", true, &create),
            ("selfsubjectaccessreviews", false, &create),
            ("selfsubjectrulesreviews", false, &create),
            ("subjectaccessreviews", false, &create),
        ]
    );
}

/// Without authentication options every caller may do everything, and reviews say so.
#[tokio::test(start_paused = true)]
async fn without_options_everybody_is_admitted() {
    let bench = Bench::new();
    assert_eq!(bench.code("anything", PODS).await, 200);
    let (code, response) = bench.review("anything", SELF_REVIEWS, json!(null)).await;
    assert_eq!(
        (code, &response["status"]["userInfo"]["username"]),
        (201, &"system:anonymous".into())
    );
    let attributes = json!({"resourceAttributes": {"verb": "list", "resource": "pods"}});
    let (_, response) = bench.review("", SELF_ACCESS_REVIEWS, attributes).await;
    assert_eq!(response["status"], json!({"allowed": true}));
}
