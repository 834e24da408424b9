//! Impersonation. The expected responses were derived from kube-apiserver 1.36: its impersonation filter and `ForbiddenStatusError`.

use super::auth::*;
use super::*;

const GATEWAY: &str = REVIEWER;

impl Bench {
    async fn as_user(
        &self,
        token: &str,
        (method, target): (&str, &str),
        headers: &[(&str, &str)],
    ) -> Response<Bytes> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{target}", self.server.address()))
            .header("Authorization", format!("Bearer {token}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new("{}".into())).unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        Response::from_parts(head, body.collect().await.unwrap().to_bytes())
    }

    /// Creates a cluster role with these rules and binds the user to it.
    async fn allow(&self, name: &str, user: &str, rules: Value) {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        self.create(&format!("{RBAC}/clusterroles"), role).await;
        let bindings = format!("{RBAC}/clusterrolebindings");
        self.create(&bindings, binding(name, name, "User", user))
            .await;
    }
}

fn rule(verb: &str, group: &str, resources: &[&str]) -> Value {
    json!({"verbs": [verb], "apiGroups": [group], "resources": resources})
}

/// A server whose gateway user may impersonate every user, group, uid and extra.
async fn bench_with_gateway() -> Bench {
    let bench = bench().await;
    let rules = json!([
        rule("impersonate", "", &["users", "groups", "serviceaccounts"]),
        rule(
            "impersonate",
            "authentication.k8s.io",
            &["uids", "userextras/team", "userextras/a/b"]
        ),
    ]);
    bench.allow("impersonator", "gateway", rules).await;
    bench
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of rows")]
async fn the_request_is_that_of_the_impersonated_user() {
    let bench = bench_with_gateway().await;
    let rows: [(&[(&str, &str)], Value); 8] = [
        (
            &[("Impersonate-User", "eve")],
            json!({"username": "eve", "groups": ["system:authenticated"]}),
        ),
        (
            &[
                ("impersonate-user", "eve"),
                ("Impersonate-Group", "a"),
                ("Impersonate-Group", "b"),
            ],
            json!({"username": "eve", "groups": ["a", "b", "system:authenticated"]}),
        ),
        (
            &[
                ("Impersonate-User", "eve"),
                ("Impersonate-User", "bob"),
                ("Impersonate-Uid", "u-1"),
            ],
            json!({"username": "eve", "uid": "u-1", "groups": ["system:authenticated"]}),
        ),
        (
            &[
                ("Impersonate-User", "eve"),
                ("Impersonate-Extra-TEAM", "x"),
                ("Impersonate-Extra-team", "y"),
            ],
            json!({"username": "eve", "groups": ["system:authenticated"], "extra": {"team": ["x", "y"]}}),
        ),
        (
            &[
                ("Impersonate-User", "eve"),
                ("Impersonate-Extra-a%2fb", "x"),
            ],
            json!({"username": "eve", "groups": ["system:authenticated"], "extra": {"a/b": ["x"]}}),
        ),
        (
            &[("Impersonate-User", "system:serviceaccount:ns:bot")],
            json!({"username": "system:serviceaccount:ns:bot",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]}),
        ),
        (
            &[
                ("Impersonate-User", "system:serviceaccount:ns:bot"),
                ("Impersonate-Group", "only"),
            ],
            json!({"username": "system:serviceaccount:ns:bot", "groups": ["only", "system:authenticated"]}),
        ),
        (
            &[("Impersonate-User", "")],
            json!({"username": "gateway", "groups": ["system:authenticated"]}),
        ),
    ];
    for (headers, expected) in rows {
        let answer = bench
            .as_user(GATEWAY, ("POST", SELF_REVIEWS), headers)
            .await;
        assert_eq!(
            answer.status(),
            StatusCode::CREATED,
            "{headers:?}: {:?}",
            answer.body()
        );
        assert_eq!(
            value(&answer)["status"]["userInfo"],
            expected,
            "{headers:?}"
        );
    }
    // The request has the rights of the impersonated user, not those of the impersonator.
    let denied = r#"pods is forbidden: User "eve" cannot list resource "pods" in API group "" in the namespace "default""#;
    let headers = [("Impersonate-User", "eve")];
    check_refused(
        &bench.as_user(ADMIN, ("GET", PODS), &headers).await,
        403,
        denied,
    );
    let masters = [
        ("Impersonate-User", "eve"),
        ("Impersonate-Group", "system:masters"),
    ];
    let answer = bench.as_user(GATEWAY, ("GET", PODS), &masters).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let nobody = denied.replace(r#""eve""#, r#""system:anonymous""#);
    let headers = [("Impersonate-User", "system:anonymous")];
    check_refused(
        &bench.as_user(GATEWAY, ("GET", PODS), &headers).await,
        403,
        &nobody,
    );
}

#[tokio::test]
#[expect(clippy::type_complexity, reason = "a table of rows")]
async fn each_part_is_authorized_and_refused_in_the_api_server_s_words() {
    let bench = bench_with_gateway().await;
    let scope = "at the cluster scope";
    let legacy = |what: &str, name: &str, resource: &str, group: &str| {
        format!(
            r#"{what} "{name}" is forbidden: User "gateway" cannot impersonate resource "{resource}" in API group "{group}" {scope}"#
        )
    };
    let on_request = |user: &str, mode: &str| {
        format!(
            r#"pods is forbidden: User "{user}" cannot impersonate-on:{mode}:list resource "pods" in API group "" in the namespace "default""#
        )
    };
    let authentication = "authentication.k8s.io";
    let rows: [(&str, &[(&str, &str)], String); 5] = [
        (ANN, &[("Impersonate-User", "eve")], on_request("ann", "user-info")),
        (ANN, &[("Impersonate-User", "system:node:n-1")], on_request("ann", "arbitrary-node")),
        (ANN, &[("Impersonate-User", "system:serviceaccount:x:bot")], on_request("ann", "serviceaccount")),
        (
            ANN,
            &[("Impersonate-User", "system:serviceaccount:x:bot"), ("Impersonate-Group", "g")],
            r#"serviceaccounts "bot" is forbidden: User "ann" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "x""#.into(),
        ),
        (GATEWAY, &[("Impersonate-User", "eve"), ("Impersonate-Extra-Other", "v")], on_request("gateway", "user-info")),
    ];
    for (token, headers, message) in rows {
        let answer = bench.as_user(token, ("GET", PODS), headers).await;
        check_refused(&answer, 403, &message);
    }
    // The server first tries the mode that succeeded before, and returns that mode's refusal.
    let eve = [("Impersonate-User", "eve")];
    let answer = bench.as_user(GATEWAY, ("POST", SELF_REVIEWS), &eve).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let rows: [(&[(&str, &str)], String); 1] = [(
        &[
            ("Impersonate-User", "eve"),
            ("Impersonate-Extra-Other", "v"),
        ],
        legacy(
            "userextras.authentication.k8s.io",
            "v",
            "userextras/other",
            authentication,
        ),
    )];
    for (headers, message) in rows {
        let answer = bench.as_user(GATEWAY, ("GET", PODS), headers).await;
        check_refused(&answer, 403, &message);
    }
}

#[tokio::test]
async fn the_right_to_impersonate_may_hold_for_some_requests_only() {
    let bench = bench().await;
    let authentication = "authentication.k8s.io";
    let rules = json!([
        rule(
            "impersonate-on:user-info:create",
            authentication,
            &["selfsubjectreviews"]
        ),
        rule(
            "impersonate:user-info",
            authentication,
            &["users", "groups"]
        ),
    ]);
    bench.allow("limited", "ann", rules).await;
    let eve = [("Impersonate-User", "eve"), ("Impersonate-Group", "dev")];
    let answer = bench.as_user(ANN, ("POST", SELF_REVIEWS), &eve).await;
    assert_eq!(value(&answer)["status"]["userInfo"]["username"], "eve");
    let refused = bench.as_user(ANN, ("GET", PODS), &eve).await;
    let message = r#"pods is forbidden: User "ann" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "default""#;
    check_refused(&refused, 403, message);
    let masters = [
        ("Impersonate-User", "eve"),
        ("Impersonate-Group", "system:masters"),
    ];
    let refused = bench.as_user(ANN, ("POST", SELF_REVIEWS), &masters).await;
    let message = r#"groups.authentication.k8s.io "system:masters" is forbidden: User "ann" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#;
    check_refused(&refused, 403, message);
}

#[tokio::test]
async fn parts_of_a_user_without_its_name_make_no_sense() {
    let bench = bench_with_gateway().await;
    let rows: [(&[(&str, &str)], &str); 3] = [
        (
            &[("Impersonate-Group", "g"), ("Impersonate-Group", "h")],
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g", "h"}, Extra:map[string][]string(nil)} without impersonating a user name"#,
        ),
        (
            &[("Impersonate-Uid", "u"), ("Impersonate-User", "")],
            r#"requested &user.DefaultInfo{Name:"", UID:"u", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name"#,
        ),
        (
            &[("Impersonate-Extra-Team", "x")],
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"team":[]string{"x"}}} without impersonating a user name"#,
        ),
    ];
    for (headers, message) in rows {
        let answer = bench.as_user(GATEWAY, ("GET", PODS), headers).await;
        check_refused(&answer, 400, message);
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    }
    let unknown = bench
        .as_user("nope", ("GET", PODS), &[("Impersonate-Group", "g")])
        .await;
    assert_eq!(unknown.status(), StatusCode::UNAUTHORIZED);
}
