//! Compares the decisions and reasons of the gateway's RBAC with those of a real API server, for the same roles, bindings and users.
//!
//! `rbac_answers/recorded.json` was written by the trust suite (see tests/real). That suite also passes its own file of access reviews to
//! these tests, in `RBAC_QUESTIONS`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a failed step fails the test, and the trust suite reads its standard output"
)]

use std::path::Path;

use kube_fanout::auth::access::{Access, ResourceAccess};
use kube_fanout::auth::rbac::{RbacDecision, RbacPolicy};
use kube_fanout::auth::user::User;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct ReviewFile {
    roles: Vec<Value>,
    bindings: Vec<Value>,
    questions: Vec<Question>,
}

/// The spec of a SubjectAccessReview, with the server's decision and the reasons it may give.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    user: String,
    groups: Vec<String>,
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<PathAttributes>,
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    reasons: Vec<String>,
}

#[derive(Deserialize)]
struct ResourceAttributes {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct PathAttributes {
    verb: String,
    path: String,
}

impl ReviewFile {
    fn read(path: &Path) -> Self {
        let text = std::fs::read(path).expect("read the file of access reviews");
        serde_json::from_slice(&text).expect("parse roles, bindings and questions")
    }

    fn policy(&self) -> RbacPolicy {
        fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
            serde_json::from_value(value.clone()).expect("parse an RBAC object")
        }
        let mut policy = RbacPolicy::default();
        for object in self.roles.iter().chain(&self.bindings) {
            let is_new = match object["kind"].as_str().unwrap_or_default() {
                "ClusterRole" => policy.put_cluster_role(parse(object)),
                "Role" => policy.put_role(parse(object)),
                "ClusterRoleBinding" => policy.put_cluster_role_binding(parse(object)),
                "RoleBinding" => policy.put_role_binding(parse(object)),
                kind => panic!("{kind} is neither a role nor a binding"),
            };
            assert!(is_new, "{object}");
        }
        policy
    }
}

impl Question {
    fn decide(&self, policy: &RbacPolicy) -> (bool, String) {
        let user = User {
            name: self.user.clone(),
            groups: self.groups.clone(),
            ..User::default()
        };
        match policy.decide(&user, &self.access()) {
            RbacDecision::Allowed(reason) => (true, reason),
            RbacDecision::NotAllowed(reason) => (false, reason),
        }
    }

    fn access(&self) -> Access {
        if let Some(attributes) = &self.non_resource_attributes {
            return Access::Path {
                verb: attributes.verb.clone(),
                path: attributes.path.clone(),
            };
        }
        let attributes = self
            .resource_attributes
            .as_ref()
            .expect("a review has resource or non-resource attributes");
        Access::Resource(ResourceAccess {
            verb: attributes.verb.clone(),
            group: attributes.group.clone(),
            version: attributes.version.clone(),
            resource: attributes.resource.clone(),
            subresource: attributes.subresource.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            ..ResourceAccess::default()
        })
    }
}

/// Sorts the errors of a reason of the form `RBAC: [a, b]`, because the server lists them in random order.
fn ordered(reason: &str) -> String {
    let inner = reason
        .strip_prefix("RBAC: [")
        .and_then(|rest| rest.strip_suffix(']'));
    inner.map_or_else(
        || reason.to_owned(),
        |inner| {
            let mut parts: Vec<&str> = inner.split(", ").collect();
            parts.sort_unstable();
            format!("RBAC: [{}]", parts.join(", "))
        },
    )
}

#[test]
fn recorded_answers_of_a_real_server_are_given() {
    let file = ReviewFile::read(Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/rbac_answers/recorded.json"
    )));
    let policy = file.policy();
    assert!(file.questions.len() >= 400);
    for (number, question) in file.questions.iter().enumerate() {
        let (allowed, reason) = question.decide(&policy);
        let (user, access) = (&question.user, question.access());
        assert_eq!(
            allowed, question.allowed,
            "{number}: {user} {access:?}: {reason}"
        );
        assert!(
            question.reasons.contains(&ordered(&reason)),
            "{number}: {user} {access:?}: {reason:?} is not one of {:?}",
            question.reasons
        );
    }
}

/// Prints a line with the decision for each question of the file in `RBAC_QUESTIONS`; the trust suite compares them with the server's.
#[test]
fn the_file_that_is_named_is_answered() {
    let Some(path) = std::env::var_os("RBAC_QUESTIONS") else {
        return;
    };
    let file = ReviewFile::read(Path::new(&path));
    let policy = file.policy();
    for question in &file.questions {
        let decision = question.decide(&policy);
        let line = serde_json::to_string(&decision).expect("serialize a decision");
        println!("answer {line}");
    }
}
