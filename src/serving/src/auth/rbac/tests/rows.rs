//! The documented behaviour of Kubernetes RBAC, row by row. The rows were written from the documentation, not from the code that they
//! test.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview};
use serde_json::{Value, json};

use crate::auth::access::{Access, ResourceAccess};
use crate::auth::rbac::{RbacDecision, RbacPolicy};
use crate::auth::user::User;

/// A policy whose roles and bindings are JSON objects, and that answers reviews.
#[derive(Default)]
struct JsonPolicy(RbacPolicy);

impl JsonPolicy {
    /// Adds or replaces a role or a binding.
    fn put(&mut self, object: Value) {
        let _ = match kind(&object) {
            "ClusterRole" => self.0.put_cluster_role(read(object)),
            "Role" => self.0.put_role(read(object)),
            "ClusterRoleBinding" => self.0.put_cluster_role_binding(read(object)),
            "RoleBinding" => self.0.put_role_binding(read(object)),
            other => panic!("{other} is neither a role nor a binding"),
        };
    }

    /// Whether the policy allows the access of a `SubjectAccessReview`.
    fn allows(&self, review: SubjectAccessReview) -> bool {
        let spec = review.spec;
        let user = User {
            name: spec.user.unwrap_or_default(),
            uid: spec.uid.unwrap_or_default(),
            groups: spec.groups.unwrap_or_default(),
            extra: spec.extra.unwrap_or_default(),
        };
        let access = match (spec.resource_attributes, spec.non_resource_attributes) {
            (Some(attributes), None) => Access::Resource(resource_access(attributes)),
            (None, Some(attributes)) => Access::Path {
                verb: attributes.verb.unwrap_or_default(),
                path: attributes.path.unwrap_or_default(),
            },
            _ => panic!("a review must have either resource or non-resource attributes"),
        };
        matches!(self.0.decide(&user, &access), RbacDecision::Allowed(_))
    }
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn resource_access(attributes: ResourceAttributes) -> ResourceAccess {
    ResourceAccess {
        verb: attributes.verb.unwrap_or_default(),
        group: attributes.group.unwrap_or_default(),
        version: attributes.version.unwrap_or_default(),
        resource: attributes.resource.unwrap_or_default(),
        subresource: attributes.subresource.unwrap_or_default(),
        namespace: attributes.namespace.unwrap_or_default(),
        name: attributes.name.unwrap_or_default(),
        ..ResourceAccess::default()
    }
}

/// A policy with one cluster role of one rule, bound cluster-wide to the user `u`.
fn with_rule(rule: &Value) -> JsonPolicy {
    let mut policy = JsonPolicy::default();
    let rules = json!([rule]);
    put(&mut policy, "ClusterRole", "", "r", json!({"rules": rules}));
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"});
    bind(&mut policy, "", "b", ("ClusterRole", "r"), &subject);
    policy
}

fn put(policy: &mut JsonPolicy, kind: &str, namespace: &str, name: &str, mut object: Value) {
    object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
    object["kind"] = json!(kind);
    object["metadata"] = json!({"name": name});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    policy.put(object);
}

fn bind(policy: &mut JsonPolicy, namespace: &str, name: &str, role: (&str, &str), subject: &Value) {
    let kind = match namespace {
        "" => "ClusterRoleBinding",
        _ => "RoleBinding",
    };
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1});
    let object = json!({"roleRef": role, "subjects": [subject]});
    put(policy, kind, namespace, name, object);
}

/// Whether the user has the access that a review's attributes describe: access to a path if they have one, otherwise to a resource.
fn is_allowed(policy: &JsonPolicy, user: &str, groups: &[&str], attributes: &Value) -> bool {
    let name = if attributes.get("path").is_some() {
        "nonResourceAttributes"
    } else {
        "resourceAttributes"
    };
    let mut spec = json!({"user": user, "groups": groups});
    spec[name] = attributes.clone();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
    });
    policy.allows(read(review))
}

/// Checks whether the rule allows these accesses to the user `u`; it never allows them to another user.
#[track_caller]
fn check(rule: &Value, rows: &[(Value, bool)]) {
    let policy = with_rule(rule);
    for (attributes, expected) in rows {
        let allowed = is_allowed(&policy, "u", &[], attributes);
        assert_eq!(allowed, *expected, "{rule} {attributes}");
        assert!(
            !is_allowed(&policy, "other", &["u"], attributes),
            "{rule} {attributes}"
        );
    }
}

#[test]
fn verbs_are_exact_or_all() {
    let rule = json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]});
    check(
        &rule,
        &[
            (json!({"verb": "list", "resource": "pods"}), true),
            (
                json!({"verb": "watch", "resource": "pods", "namespace": "n"}),
                true,
            ),
            (
                json!({"verb": "get", "resource": "pods", "namespace": "n", "name": "p"}),
                false,
            ),
            (json!({"verb": "LIST", "resource": "pods"}), false),
            (json!({"verb": "", "resource": "pods"}), false),
            // Only a rule for all verbs allows the verb `*`.
            (json!({"verb": "*", "resource": "pods"}), false),
        ],
    );
    let rule = json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]});
    check(
        &rule,
        &[
            (json!({"verb": "impersonate", "resource": "pods"}), true),
            (json!({"verb": "*", "resource": "pods"}), true),
        ],
    );
    let rule = json!({"verbs": ["li*"], "apiGroups": [""], "resources": ["pods"]});
    check(
        &rule,
        &[(json!({"verb": "list", "resource": "pods"}), false)],
    );
}

#[test]
fn groups_are_exact_or_all_and_versions_do_not_count() {
    let rule = json!({"verbs": ["list"], "apiGroups": ["apps", "batch"], "resources": ["*"]});
    check(
        &rule,
        &[
            (
                json!({"verb": "list", "group": "apps", "resource": "deployments"}),
                true,
            ),
            (
                json!({"verb": "list", "group": "batch", "resource": "jobs", "version": "v9"}),
                true,
            ),
            (json!({"verb": "list", "resource": "pods"}), false),
            (
                json!({"verb": "list", "group": "*", "resource": "jobs"}),
                false,
            ),
        ],
    );
    let rule = json!({"verbs": ["list"], "apiGroups": ["*"], "resources": ["jobs"]});
    check(
        &rule,
        &[
            (json!({"verb": "list", "resource": "jobs"}), true),
            (
                json!({"verb": "list", "group": "any.example", "resource": "jobs"}),
                true,
            ),
        ],
    );
    // An empty list of groups does not mean the core group.
    let rule = json!({"verbs": ["list"], "apiGroups": [], "resources": ["pods"]});
    check(
        &rule,
        &[(json!({"verb": "list", "resource": "pods"}), false)],
    );
}

#[test]
fn subresources_are_named_with_their_resource_or_for_all() {
    let get = |resource: &str, subresource: &str| {
        json!({
            "verb": "get", "resource": resource, "subresource": subresource, "namespace": "n", "name": "p",
        })
    };
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/scale"]});
    check(
        &rule,
        &[
            (get("pods", ""), true),
            (get("pods", "log"), false),
            (get("pods", "scale"), true),
            (get("replicationcontrollers", "scale"), true),
            (get("replicationcontrollers", ""), false),
            (get("scale", ""), false),
            (get("pods", "autoscale"), false),
        ],
    );
    // There is no wildcard for the subresources of one resource.
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/*"]});
    check(
        &rule,
        &[
            (get("pods", ""), false),
            (get("pods", "log"), false),
            (get("pods", "*"), true),
        ],
    );
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]});
    check(
        &rule,
        &[(get("pods", "log"), true), (get("pods", ""), false)],
    );
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*"]});
    check(
        &rule,
        &[(get("pods", ""), true), (get("pods", "log"), true)],
    );
    // Wildcards within a name have no effect.
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["po*", "*/*"]});
    check(
        &rule,
        &[
            (get("pods", ""), false),
            (get("pods", "log"), false),
            (get("pods", "*"), true),
        ],
    );
}

#[test]
fn names_count_for_lists_and_watches_by_metadata_name() {
    let rule = json!({
        "verbs": ["list", "watch", "create"], "apiGroups": [""], "resources": ["configmaps"],
        "resourceNames": ["one", "two"],
    });
    let attributes = |verb: &str, name: Option<&str>| {
        let mut attributes = json!({"verb": verb, "resource": "configmaps", "namespace": "n"});
        if let Some(name) = name {
            attributes["name"] = json!(name);
        }
        attributes
    };
    check(
        &rule,
        &[
            (attributes("list", Some("one")), true),
            (attributes("watch", Some("two")), true),
            (attributes("list", Some("three")), false),
            (attributes("list", Some("on")), false),
            (attributes("list", None), false),
            (attributes("watch", None), false),
            // A create request does not name its object.
            (attributes("create", None), false),
        ],
    );
    let rule = json!({
        "verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [],
    });
    check(
        &rule,
        &[
            (attributes("list", None), true),
            (attributes("list", Some("one")), true),
        ],
    );
    // There is no wildcard for names.
    let rule = json!({
        "verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["*"],
    });
    check(
        &rule,
        &[
            (attributes("list", None), false),
            (attributes("list", Some("one")), false),
            (attributes("list", Some("*")), true),
        ],
    );
}

#[test]
fn paths_are_exact_or_begin_alike() {
    let get = |path: &str| json!({"verb": "get", "path": path});
    let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*", "/api*"]});
    check(
        &rule,
        &[
            (get("/healthz"), true),
            (get("/healthz/"), false),
            (get("/healthz/etcd"), false),
            (get("/logs/"), true),
            (get("/logs/a/b"), true),
            (get("/logs"), false),
            (get("/api"), true),
            (get("/apis/x"), true),
            (get("/"), false),
            (json!({"verb": "post", "path": "/healthz"}), false),
            // Rules for paths do not apply to resources.
            (json!({"verb": "get", "resource": "healthz"}), false),
        ],
    );
    let rule = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    check(&rule, &[(get("/"), true), (get("/anything"), true)]);
    let rule = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    check(&rule, &[(get("/healthz"), false)]);
    // A `*` that is not at the end is an ordinary character.
    let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/a/*/b"]});
    check(&rule, &[(get("/a/x/b"), false), (get("/a/*/b"), true)]);
}

#[test]
fn bindings_of_a_namespace_reach_no_further() {
    let pods =
        |namespace: &str| json!({"verb": "list", "resource": "pods", "namespace": namespace});
    let rules = json!({"rules": [
        {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
    ]});
    let subject = json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "g"});
    for role in ["ClusterRole", "Role"] {
        let mut policy = JsonPolicy::default();
        let namespace = if role == "Role" { "a" } else { "" };
        put(&mut policy, role, namespace, "r", rules.clone());
        bind(&mut policy, "a", "b", (role, "r"), &subject);
        let rows = [
            (pods("a"), true),
            (pods("b"), false),
            (pods(""), false),
            (json!({"verb": "get", "path": "/metrics"}), false),
        ];
        for (attributes, expected) in rows {
            let allowed = is_allowed(&policy, "u", &["x", "g"], &attributes);
            assert_eq!(allowed, expected, "{role} {attributes}");
            assert!(
                !is_allowed(&policy, "g", &["x"], &attributes),
                "{role} {attributes}"
            );
        }
    }
}

#[test]
fn service_accounts_are_meant_by_name_and_namespace() {
    let pods =
        |namespace: &str| json!({"verb": "list", "resource": "pods", "namespace": namespace});
    let rules = json!({"rules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]});
    let in_namespace = json!({"kind": "ServiceAccount", "name": "bot", "namespace": "b"});
    let without = json!({"kind": "ServiceAccount", "name": "bot"});
    let rows = [
        // The binding's namespace, its subject, the user, the namespace of the access, and whether it is allowed.
        ("", &in_namespace, "system:serviceaccount:b:bot", "z", true),
        ("", &in_namespace, "system:serviceaccount:a:bot", "z", false),
        ("", &in_namespace, "bot", "z", false),
        ("a", &in_namespace, "system:serviceaccount:b:bot", "a", true),
        (
            "a",
            &in_namespace,
            "system:serviceaccount:a:bot",
            "a",
            false,
        ),
        // A subject without a namespace is a service account in the binding's namespace.
        ("a", &without, "system:serviceaccount:a:bot", "a", true),
        ("a", &without, "system:serviceaccount:b:bot", "a", false),
        ("", &without, "system:serviceaccount::bot", "z", false),
        ("", &without, "system:serviceaccount:a:bot", "z", false),
    ];
    for (bound_in, subject, user, namespace, expected) in rows {
        let mut policy = JsonPolicy::default();
        put(&mut policy, "ClusterRole", "", "r", rules.clone());
        bind(&mut policy, bound_in, "b", ("ClusterRole", "r"), subject);
        let allowed = is_allowed(&policy, user, &[], &pods(namespace));
        assert_eq!(allowed, expected, "{bound_in} {subject} {user}");
    }
}

#[test]
fn a_role_that_is_missing_allows_nothing_and_hides_nothing() {
    let pods = json!({"verb": "list", "resource": "pods", "namespace": "a"});
    let rules = json!({"rules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]});
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"});
    let mut policy = JsonPolicy::default();
    bind(&mut policy, "a", "first", ("Role", "missing"), &subject);
    bind(
        &mut policy,
        "",
        "first",
        ("ClusterRole", "missing"),
        &subject,
    );
    assert!(!is_allowed(&policy, "u", &[], &pods));
    put(&mut policy, "Role", "b", "missing", rules.clone());
    assert!(
        !is_allowed(&policy, "u", &[], &pods),
        "a role of another namespace was used"
    );
    put(&mut policy, "ClusterRole", "", "reader", rules.clone());
    bind(
        &mut policy,
        "a",
        "second",
        ("ClusterRole", "reader"),
        &subject,
    );
    assert!(is_allowed(&policy, "u", &[], &pods));
    policy.0.remove_role("", "reader");
    assert!(!is_allowed(&policy, "u", &[], &pods));
    put(&mut policy, "Role", "a", "missing", rules);
    assert!(
        is_allowed(&policy, "u", &[], &pods),
        "the role is no longer missing"
    );
}

#[test]
fn a_cluster_binding_cannot_refer_to_a_role_of_a_namespace() {
    let pods = json!({"verb": "list", "resource": "pods", "namespace": "a"});
    let rules = json!({"rules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]});
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"});
    let mut policy = JsonPolicy::default();
    put(&mut policy, "ClusterRole", "", "r", rules.clone());
    put(&mut policy, "Role", "a", "r", rules);
    bind(&mut policy, "", "b", ("Role", "r"), &subject);
    assert!(!is_allowed(&policy, "u", &[], &pods));
}

#[test]
fn aggregated_roles_have_the_rules_that_the_controller_wrote() {
    let pods = json!({"verb": "list", "resource": "pods", "namespace": "a"});
    let rule = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]});
    let selector = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]});
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"});
    let mut policy = JsonPolicy::default();
    put(
        &mut policy,
        "ClusterRole",
        "",
        "part",
        json!({"rules": [rule]}),
    );
    put(
        &mut policy,
        "ClusterRole",
        "",
        "all",
        json!({"aggregationRule": selector, "rules": null}),
    );
    bind(&mut policy, "", "b", ("ClusterRole", "all"), &subject);
    assert!(!is_allowed(&policy, "u", &[], &pods));
    put(
        &mut policy,
        "ClusterRole",
        "",
        "all",
        json!({"aggregationRule": selector, "rules": [rule]}),
    );
    assert!(is_allowed(&policy, "u", &[], &pods));
}

#[test]
fn fields_missing_in_a_role_allow_nothing() {
    let pods = json!({"verb": "list", "resource": "pods", "namespace": "a"});
    for rule in [
        json!({"verbs": ["list"]}),
        json!({"verbs": ["list"], "apiGroups": [""]}),
        json!({"verbs": ["list"], "resources": ["pods"]}),
        json!({"verbs": [], "apiGroups": [""], "resources": ["pods"]}),
    ] {
        check(&rule, &[(pods.clone(), false)]);
    }
    let mut policy = JsonPolicy::default();
    put(&mut policy, "ClusterRole", "", "r", json!({}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"});
    put(
        &mut policy,
        "ClusterRoleBinding",
        "",
        "b",
        json!({"roleRef": role}),
    );
    assert!(!is_allowed(&policy, "", &[], &pods));
    assert!(!is_allowed(&policy, "u", &[""], &pods));
}
