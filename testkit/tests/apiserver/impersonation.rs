//! Impersonation. The expected responses were derived from kube-apiserver: its impersonation filter and `ForbiddenStatusError`.

use super::auth::*;
use super::*;

const GATEWAY: &str = REVIEWER;

impl Bench {
    async fn as_user(
        &self,
        token: &str,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Response<Bytes> {
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header("Authorization", format!("Bearer {token}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new("{}".into())).unwrap();
        collected(self.client.exchange(request).await.unwrap()).await
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

/// A server whose gateway user may impersonate every user, group, service account and uid, and the extras `team` and `a/b`.
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

type Headers<'a> = &'a [(&'a str, &'a str)];

#[tokio::test(start_paused = true)]
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
        let response = bench.as_user(GATEWAY, "POST", SELF_REVIEWS, headers).await;
        assert_eq!(
            response.status(),
            StatusCode::CREATED,
            "{headers:?}: {:?}",
            response.body()
        );
        assert_eq!(
            value(&response)["status"]["userInfo"],
            expected,
            "{headers:?}"
        );
    }
    // The request has the rights of the impersonated user, not those of the impersonator.
    let denied = r#"pods is forbidden: User "eve" cannot list resource "pods" in API group "" in the namespace "default""#;
    let headers = [("Impersonate-User", "eve")];
    check_refused(
        &bench.as_user(ADMIN, "GET", PODS, &headers).await,
        403,
        denied,
    );
    let masters = [
        ("Impersonate-User", "eve"),
        ("Impersonate-Group", "system:masters"),
    ];
    let response = bench.as_user(GATEWAY, "GET", PODS, &masters).await;
    assert_eq!(response.status(), StatusCode::OK);
    let denied_anonymous = denied.replace(r#""eve""#, r#""system:anonymous""#);
    let headers = [("Impersonate-User", "system:anonymous")];
    check_refused(
        &bench.as_user(GATEWAY, "GET", PODS, &headers).await,
        403,
        &denied_anonymous,
    );
}

#[tokio::test(start_paused = true)]
async fn each_part_needs_the_right_to_impersonate_it() {
    let bench = bench_with_gateway().await;
    let rows: [(&str, Headers<'_>, &str); 3] = [
        (
            ANN,
            &[("Impersonate-User", "eve")],
            r#"users "eve" is forbidden: User "ann" cannot impersonate resource "users" in API group "" at the cluster scope"#,
        ),
        (
            ANN,
            &[("Impersonate-User", "system:serviceaccount:x:bot")],
            r#"serviceaccounts "bot" is forbidden: User "ann" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "x""#,
        ),
        (
            GATEWAY,
            &[
                ("Impersonate-User", "eve"),
                ("Impersonate-Extra-Other", "v"),
            ],
            r#"userextras.authentication.k8s.io "v" is forbidden: User "gateway" cannot impersonate resource "userextras/other" in API group "authentication.k8s.io" at the cluster scope"#,
        ),
    ];
    for (token, headers, message) in rows {
        let response = bench.as_user(token, "GET", PODS, headers).await;
        check_refused(&response, 403, message);
    }
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_user_without_its_name_make_no_sense() {
    let bench = bench_with_gateway().await;
    let rows: [(Headers<'_>, &str); 3] = [
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
        let response = bench.as_user(GATEWAY, "GET", PODS, headers).await;
        check_refused(&response, 400, message);
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    }
    let unknown = bench
        .as_user("nope", "GET", PODS, &[("Impersonate-Group", "g")])
        .await;
    assert_eq!(unknown.status(), StatusCode::UNAUTHORIZED);
}
