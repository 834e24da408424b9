//! The default roles and bindings: those of kube-apiserver's policy that concern discovery, reviews and administrators.

use serde_json::{Value, json};

use super::rbac::GROUP;
use super::{AUTHENTICATED, MASTERS, UNAUTHENTICATED};
use crate::apiserver::store::{Store, Write};

/// Cluster roles and the groups that they are bound to. The binding has the role's name.
const BINDINGS: [(&str, &[&str]); 4] = [
    ("cluster-admin", &[MASTERS]),
    ("system:basic-user", &[AUTHENTICATED]),
    ("system:discovery", &[AUTHENTICATED]),
    (
        "system:public-info-viewer",
        &[AUTHENTICATED, UNAUTHENTICATED],
    ),
];

/// Writes the default roles and bindings.
pub(super) fn write(store: &Store) {
    let index = |plural| store.catalogue().index_of(GROUP, "v1", plural);
    let (Some(roles), Some(bindings)) = (index("clusterroles"), index("clusterrolebindings"))
    else {
        return;
    };
    let mut writes = Vec::new();
    for (name, rules) in rules() {
        let role = object(name, json!({"rules": rules}));
        writes.push(Write::create(roles, "", role));
    }
    for (name, groups) in BINDINGS {
        let subject = |group: &&str| json!({"apiGroup": GROUP, "kind": "Group", "name": group});
        let subjects: Vec<Value> = groups.iter().map(subject).collect();
        let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
        let binding = object(name, json!({"roleRef": role, "subjects": subjects}));
        writes.push(Write::create(bindings, "", binding));
    }
    for error in store.write_all(writes) {
        tracing::error!(%error, "cannot write a default role or binding");
    }
}

fn object(name: &str, mut members: Value) -> Value {
    members["metadata"] = json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    members
}

fn rules() -> [(&'static str, Value); 5] {
    let (authentication, authorization) = ("authentication.k8s.io", "authorization.k8s.io");
    let create = |group: &str, resources: &[&str]| json!({"verbs": ["create"], "apiGroups": [group], "resources": resources});
    let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/openapi",
        "/openapi/*",
    ];
    let discovery = [&discovery[..], &public[..]].concat();
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let self_reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    [
        (
            "cluster-admin",
            json!([all, {"verbs": ["*"], "nonResourceURLs": ["*"]}]),
        ),
        (
            "system:auth-delegator",
            json!([
                create(authentication, &["tokenreviews"]),
                create(authorization, &["subjectaccessreviews"]),
            ]),
        ),
        (
            "system:basic-user",
            json!([
                create(authorization, &self_reviews),
                create(authentication, &["selfsubjectreviews"]),
            ]),
        ),
        (
            "system:discovery",
            json!([{"verbs": ["get"], "nonResourceURLs": discovery}]),
        ),
        (
            "system:public-info-viewer",
            json!([{"verbs": ["get"], "nonResourceURLs": public}]),
        ),
    ]
}
