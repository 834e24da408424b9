//! The default roles and bindings: the subset of kube-apiserver's bootstrap policy that concerns discovery, reviews and
//! administrators.

use serde_json::{Value, json};

use super::roles::GROUP;
use crate::apiserver::kinds::Catalogue;
use crate::apiserver::storage::{
    Stamp, Storage, WritablePart, WriteMode, WriteOutcome, WriteTarget,
};
use crate::apiserver::store::Store;
use crate::auth::user::{AUTHENTICATED, MASTERS, UNAUTHENTICATED};
use crate::protocol::status::Status;
use crate::resource::ObjectKey;

/// Writes the default roles and bindings to the store; does nothing if the catalogue has no RBAC kinds.
pub(super) fn write(catalogue: &Catalogue, store: &Store) {
    let index = |plural| catalogue.index_of(GROUP, "v1", plural);
    let (Some(roles), Some(bindings)) = (index("clusterroles"), index("clusterrolebindings"))
    else {
        return;
    };
    let roles = roles_and_rules().map(|(name, rules)| (roles, role(name, &rules)));
    let bindings = BINDINGS
        .iter()
        .map(|(name, groups)| (bindings, binding(name, groups)));
    let write = |(kind_index, object): (usize, Value)| {
        move |storage: &mut Storage, stamp: Stamp<'_>| create(storage, kind_index, object, stamp)
    };
    for refusal in store.write_all(roles.into_iter().chain(bindings).map(write)) {
        tracing::error!(%refusal, "cannot write a default role or binding");
    }
}

fn create(
    storage: &mut Storage,
    kind_index: usize,
    object: Value,
    stamp: Stamp<'_>,
) -> Result<WriteOutcome, Status> {
    let target = WriteTarget {
        kind_index,
        key: ObjectKey::new("", ""),
        part: WritablePart::Whole,
        mode: WriteMode::Keep,
    };
    storage.create(&target, object, stamp)
}

/// Cluster roles, and the groups that each is bound to; the binding has the role's name.
const BINDINGS: &[(&str, &[&str])] = &[
    ("cluster-admin", &[MASTERS]),
    ("system:basic-user", &[AUTHENTICATED]),
    ("system:discovery", &[AUTHENTICATED]),
    (
        "system:public-info-viewer",
        &[AUTHENTICATED, UNAUTHENTICATED],
    ),
];

fn roles_and_rules() -> [(&'static str, Value); 5] {
    let create_rule = |group: &str, resources: &[&str]| json!({"verbs": ["create"], "apiGroups": [group], "resources": resources});
    let paths = |paths: &[&str]| json!([{"verbs": ["get"], "nonResourceURLs": paths}]);
    let (authentication, authorization) = ("authentication.k8s.io", "authorization.k8s.io");
    [
        (
            "cluster-admin",
            json!([
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]),
        ),
        (
            "system:auth-delegator",
            json!([
                create_rule(authentication, &["tokenreviews"]),
                create_rule(authorization, &["subjectaccessreviews"]),
            ]),
        ),
        (
            "system:basic-user",
            json!([
                create_rule(
                    authorization,
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
                ),
                create_rule(authentication, &["selfsubjectreviews"]),
            ]),
        ),
        (
            "system:discovery",
            paths(&[
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/healthz",
                "/livez",
                "/openapi",
                "/openapi/*",
                "/readyz",
                "/version",
                "/version/",
            ]),
        ),
        (
            "system:public-info-viewer",
            paths(&["/healthz", "/livez", "/readyz", "/version", "/version/"]),
        ),
    ]
}

fn role(name: &str, rules: &Value) -> Value {
    object("ClusterRole", name, json!({"rules": rules}))
}

fn binding(name: &str, groups: &[&str]) -> Value {
    let subject = |group: &&str| json!({"apiGroup": GROUP, "kind": "Group", "name": group});
    let subjects: Vec<Value> = groups.iter().map(subject).collect();
    let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
    let members = json!({"roleRef": role, "subjects": subjects});
    object("ClusterRoleBinding", name, members)
}

fn object(kind: &str, name: &str, mut members: Value) -> Value {
    members["kind"] = kind.into();
    members["apiVersion"] = format!("{GROUP}/v1").into();
    members["metadata"] = json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    members
}
