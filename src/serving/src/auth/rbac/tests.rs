//! Rules, subjects and reasons agree with the API server's authorizer.

mod index;
mod rows;

use serde_json::{Value, json};

use super::*;

/// A user with these groups.
fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..User::default()
    }
}

/// Parses `VERB GROUP RESOURCE[/SUBRESOURCE][:NAME][@NAMESPACE]`, with `-` for the core group, or `VERB PATH`.
fn access(text: &str) -> Access {
    let words: Vec<&str> = text.split(' ').collect();
    let [verb, rest @ ..] = words.as_slice() else {
        unreachable!("splitting returns at least one word");
    };
    match rest {
        [path] => Access::Path {
            verb: (*verb).to_owned(),
            path: (*path).to_owned(),
        },
        [group, object] => {
            let (object, namespace) = object.split_once('@').unwrap_or((object, ""));
            let (object, name) = object.split_once(':').unwrap_or((object, ""));
            let (resource, subresource) = object.split_once('/').unwrap_or((object, ""));
            Access::Resource(ResourceAccess {
                verb: (*verb).to_owned(),
                group: group.trim_matches('-').to_owned(),
                version: "v1".to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                ..ResourceAccess::default()
            })
        }
        _ => unreachable!("{text}"),
    }
}

/// Evaluates `RULE <- ACCESS`: whether the rule, in JSON, allows the access.
fn rule(text: &str) -> bool {
    let (rule, requested) = text.split_once(" <- ").unwrap();
    let rule: PolicyRule = serde_json::from_str(rule).unwrap();
    allows(&rule, &access(requested))
}

#[test]
fn rules_allow_what_they_name() {
    let pods = r#"{"verbs":["list","watch"],"apiGroups":[""],"resources":["pods"]}"#;
    let log = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods/log"]}"#;
    let status = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*/status"]}"#;
    let all = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}"#;
    let named = r#"{"verbs":["get","list"],"apiGroups":["apps"],"resources":["deployments"],"resourceNames":["a","b"]}"#;
    let paths = r#"{"verbs":["get"],"nonResourceURLs":["/version","/healthz/*"]}"#;
    let rows = [
        (pods, "list - pods", true),
        (pods, "watch - pods@a", true),
        (pods, "list - pods:one@a", true),
        (pods, "get - pods", false),
        (pods, "list apps pods", false),
        (pods, "list - pods/log@a", false),
        (pods, "list - podtemplates", false),
        (log, "get - pods/log:one@a", true),
        (log, "get - pods:one@a", false),
        (log, "get - services/log:one@a", false),
        (status, "patch apps deployments/status:one@a", true),
        (status, "patch apps deployments/scale:one@a", false),
        (status, "patch apps deployments:one@a", false),
        (all, "deletecollection batch jobs@a", true),
        (all, "create - pods/exec:one@a", true),
        (all, "get /version", false),
        (named, "get apps deployments:b@a", true),
        (named, "list apps deployments:a@a", true),
        (named, "list apps deployments@a", false),
        (named, "get apps deployments:c@a", false),
        (paths, "get /version", true),
        (paths, "get /version/", false),
        (paths, "get /healthz/etcd", true),
        (paths, "get /healthz", false),
        (paths, "post /version", false),
        (paths, "get - version", false),
        ("{\"verbs\":[]}", "get - pods", false),
    ];
    for (json, requested, expected) in rows {
        assert_eq!(
            rule(&format!("{json} <- {requested}")),
            expected,
            "{json} {requested}"
        );
    }
}

/// Puts an object, and returns whether that changed what it grants.
fn put(policy: &mut RbacPolicy, object: Value) -> bool {
    match object["kind"].as_str().unwrap() {
        "ClusterRole" => policy.put_cluster_role(serde_json::from_value(object).unwrap()),
        "Role" => policy.put_role(serde_json::from_value(object).unwrap()),
        "ClusterRoleBinding" => {
            policy.put_cluster_role_binding(serde_json::from_value(object).unwrap())
        }
        "RoleBinding" => policy.put_role_binding(serde_json::from_value(object).unwrap()),
        other => unreachable!("{other}"),
    }
}

/// A policy from objects as `kubectl get -o json` shows them.
fn policy(objects: &[Value]) -> RbacPolicy {
    let mut policy = RbacPolicy::default();
    for object in objects {
        assert!(put(&mut policy, object.clone()));
    }
    policy
}

fn binding(name: &str, namespace: Option<&str>, role: (&str, &str), subject: Value) -> Value {
    let kind = namespace.map_or("ClusterRoleBinding", |_| "RoleBinding");
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1},
        "subjects": [subject],
    })
}

fn objects() -> Vec<Value> {
    let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]);
    let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["*"]}]);
    let own = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["secrets"]}]);
    let role = |kind: &str, name: &str, namespace: Option<&str>, rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "rules": rules,
        })
    };
    vec![
        role("ClusterRole", "pods", None, rules),
        role("ClusterRole", "paths", None, paths),
        role("Role", "own", Some("a"), own),
        binding(
            "everywhere",
            None,
            ("ClusterRole", "pods"),
            json!({"kind": "User", "name": "ann"}),
        ),
        binding(
            "here",
            Some("a"),
            ("ClusterRole", "pods"),
            json!({"kind": "Group", "name": "dev"}),
        ),
        binding(
            "robot",
            Some("a"),
            ("Role", "own"),
            json!({"kind": "ServiceAccount", "name": "bot", "namespace": "b"}),
        ),
        binding(
            "paths",
            None,
            ("ClusterRole", "paths"),
            json!({"kind": "Group", "name": "dev"}),
        ),
        binding(
            "lost",
            Some("c"),
            ("Role", "absent"),
            json!({"kind": "User", "name": "ann"}),
        ),
    ]
}

#[test]
fn bindings_reach_their_subjects_in_their_scope() {
    let policy = policy(&objects());
    let (ann, dev) = (user("ann", &[]), user("eve", &["dev"]));
    let bot = user("system:serviceaccount:b:bot", &[]);
    let rows = [
        (&ann, "list - pods", true),
        (&ann, "list - pods@z", true),
        (&ann, "list - secrets@a", false),
        (&dev, "list - pods@a", true),
        (&dev, "list - pods@b", false),
        (&dev, "list - pods", false),
        (&dev, "get /metrics", true),
        (&ann, "get /metrics", false),
        (&bot, "list - secrets@a", true),
        (&bot, "list - secrets@b", false),
        (&bot, "list - secrets", false),
        (&user("bot", &[]), "list - secrets@a", false),
        (&user("", &[""]), "list - pods", false),
    ];
    for (user, requested, expected) in rows {
        let decision = policy.decide(user, &access(requested));
        assert_eq!(decision.is_allowed(), expected, "{} {requested}", user.name);
    }
}

#[test]
fn reasons_are_the_api_servers() {
    let policy = policy(&objects());
    let ann = user("ann", &[]);
    let rows = [
        (
            policy.decide(&ann, &access("list - pods")),
            RbacDecision::Allowed(
                r#"RBAC: allowed by ClusterRoleBinding "everywhere" of ClusterRole "pods" to User "ann""#.into(),
            ),
        ),
        (
            policy.decide(&user("system:serviceaccount:b:bot", &[]), &access("list - secrets@a")),
            RbacDecision::Allowed(
                r#"RBAC: allowed by RoleBinding "robot/a" of Role "own" to ServiceAccount "bot/b""#.into(),
            ),
        ),
        (
            policy.decide(&ann, &access("list - secrets@c")),
            RbacDecision::NotAllowed(
                r#"RBAC: role.rbac.authorization.k8s.io "absent" not found"#.into(),
            ),
        ),
        (
            policy.decide(&ann, &access("list - secrets@a")),
            RbacDecision::NotAllowed(String::new()),
        ),
    ];
    for (decision, expected) in rows {
        assert_eq!(decision, expected);
    }
}

#[test]
fn removed_and_replaced_roles_no_longer_count() {
    let mut policy = policy(&objects());
    let (ann, bot) = (user("ann", &[]), user("system:serviceaccount:b:bot", &[]));
    policy.remove_binding("", "everywhere");
    assert!(!policy.decide(&ann, &access("list - pods@a")).is_allowed());
    policy.remove_role("a", "own");
    assert!(
        !policy
            .decide(&bot, &access("list - secrets@a"))
            .is_allowed()
    );
    let newer = binding(
        "here",
        Some("a"),
        ("ClusterRole", "pods"),
        json!({"kind": "User", "name": "ann"}),
    );
    policy.put_role_binding(serde_json::from_value(newer).unwrap());
    assert!(policy.decide(&ann, &access("list - pods@a")).is_allowed());
    let dev = user("eve", &["dev"]);
    assert!(!policy.decide(&dev, &access("list - pods@a")).is_allowed());
}

#[test]
fn only_rules_roles_and_subjects_are_a_change() {
    let mut policy = policy(&objects());
    for object in objects() {
        let mut labelled = object.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        labelled["metadata"]["annotations"] = json!({"a": "b"});
        labelled["metadata"]["resourceVersion"] = json!("7");
        assert!(!put(&mut policy, labelled), "{object}");
        // The controller writes the rules of aggregated roles; who is aggregated is not what a role grants.
        let mut aggregated = object.clone();
        aggregated["aggregationRule"] = json!({"clusterRoleSelectors": []});
        assert!(!put(&mut policy, aggregated), "{object}");

        let mut changed = object.clone();
        if object["rules"].is_array() {
            changed["rules"][0]["verbs"] = json!(["delete"]);
        } else {
            changed["subjects"][0]["name"] = json!("eve");
            assert!(put(&mut policy, changed.clone()), "{object}");
            changed["roleRef"]["name"] = json!("other");
        }
        assert!(put(&mut policy, changed.clone()), "{object}");
        assert!(!put(&mut policy, changed), "{object}");
    }
    assert!(policy.remove_role("a", "own") && !policy.remove_role("a", "own"));
    assert!(policy.remove_binding("c", "lost") && !policy.remove_binding("c", "lost"));
}
