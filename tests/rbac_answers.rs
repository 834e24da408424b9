//! What the gateway's RBAC decides, and why, beside what a real API server said of the same roles, bindings and users.
//!
//! `rbac_answers/recorded.json` was written by the trust suite (see tests/real), which also has questions of its own answered here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a failed step fails the test, and another program reads what it prints"
)]

use std::path::Path;

use kube_fanout::auth::access::{Access, ResourceAccess};
use kube_fanout::auth::rbac::{RbacDecision, RbacPolicy};
use kube_fanout::auth::user::User;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Asked {
    roles: Vec<Value>,
    bindings: Vec<Value>,
    questions: Vec<Question>,
}

/// As the spec of a SubjectAccessReview, with what the server said.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    user: String,
    groups: Vec<String>,
    resource_attributes: Option<OnResource>,
    non_resource_attributes: Option<OnPath>,
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    reasons: Vec<String>,
}

#[derive(Deserialize)]
struct OnResource {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct OnPath {
    verb: String,
    path: String,
}

impl Asked {
    fn read(path: &Path) -> Self {
        let text = std::fs::read(path).expect("the file can be read");
        serde_json::from_slice(&text).expect("the file has roles, bindings and questions")
    }

    fn policy(&self) -> RbacPolicy {
        fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> T {
            serde_json::from_value(value.clone()).expect("an object of its kind")
        }
        let mut policy = RbacPolicy::default();
        for one in self.roles.iter().chain(&self.bindings) {
            match one["kind"].as_str().unwrap_or_default() {
                "ClusterRole" => policy.put_cluster_role(typed(one)),
                "Role" => policy.put_role(typed(one)),
                "ClusterRoleBinding" => policy.put_cluster_role_binding(typed(one)),
                "RoleBinding" => policy.put_role_binding(typed(one)),
                kind => panic!("{kind} is no role and no binding"),
            }
        }
        policy
    }
}

impl Question {
    fn answer(&self, policy: &RbacPolicy) -> (bool, String) {
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
        if let Some(on) = &self.non_resource_attributes {
            return Access::Path {
                verb: on.verb.clone(),
                path: on.path.clone(),
            };
        }
        let on = self.resource_attributes.as_ref().expect("one of the two");
        Access::Resource(ResourceAccess {
            verb: on.verb.clone(),
            group: on.group.clone(),
            version: on.version.clone(),
            resource: on.resource.clone(),
            subresource: on.subresource.clone(),
            namespace: on.namespace.clone(),
            name: on.name.clone(),
            ..ResourceAccess::default()
        })
    }
}

/// With the missing roles in one order, in which the server names them in none.
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
    let asked = Asked::read(Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/rbac_answers/recorded.json"
    )));
    let policy = asked.policy();
    assert!(asked.questions.len() >= 400);
    for (number, question) in asked.questions.iter().enumerate() {
        let (allowed, reason) = question.answer(&policy);
        let (user, access) = (&question.user, question.access());
        assert_eq!(
            allowed, question.allowed,
            "{number}: {user} {access:?}: {reason}"
        );
        assert!(
            question.reasons.contains(&ordered(&reason)),
            "{number}: {user} {access:?}: {reason:?} is none of {:?}",
            question.reasons
        );
    }
}

/// Prints a line for each question of the file in `RBAC_QUESTIONS`; the trust suite compares.
#[test]
fn the_file_that_is_named_is_answered() {
    let Some(path) = std::env::var_os("RBAC_QUESTIONS") else {
        return;
    };
    let asked = Asked::read(Path::new(&path));
    let policy = asked.policy();
    for question in &asked.questions {
        let answer = question.answer(&policy);
        let line = serde_json::to_string(&answer).expect("a line");
        println!("answer {line}");
    }
}
