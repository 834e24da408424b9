//! A SelfSubjectRulesReview without its rules, of which the probe reads none. Unlike the type of k8s-openapi it is strict: an answer that does
//! not say whether it is complete is invalid.

use k8s_openapi::{ClusterResourceScope, Resource};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RulesReview {
    api_version: String,
    kind: String,
    /// kube-apiserver leaves it out of its answer.
    #[serde(skip_deserializing)]
    spec: RulesReviewSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<RulesReviewStatus>,
}

#[derive(Debug, Default, Serialize)]
struct RulesReviewSpec {
    namespace: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct RulesReviewStatus {
    incomplete: bool,
}

impl RulesReview {
    pub(super) fn of_namespace(namespace: &str) -> Self {
        Self {
            api_version: Self::API_VERSION.to_owned(),
            kind: Self::KIND.to_owned(),
            spec: RulesReviewSpec {
                namespace: namespace.to_owned(),
            },
            status: None,
        }
    }

    /// Whether all of upstream's authorizers have named their rules.
    pub(super) fn is_complete(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| !status.incomplete)
    }
}

impl Resource for RulesReview {
    const API_VERSION: &'static str = "authorization.k8s.io/v1";
    const GROUP: &'static str = "authorization.k8s.io";
    const KIND: &'static str = "SelfSubjectRulesReview";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "selfsubjectrulesreviews";
    type Scope = ClusterResourceScope;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: &str, is_complete: Option<bool>) {
        let answer = format!(
            r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","metadata":{{}},
                "spec":{{}}{status}}}"#
        );
        let review = serde_json::from_str::<RulesReview>(&answer);
        assert_eq!(review.ok().map(|review| review.is_complete()), is_complete);
    }

    #[test]
    fn only_an_answer_that_says_so_is_complete() {
        let rules = r#""resourceRules":[{"verbs":["*"],"apiGroups":["*"]}],"nonResourceRules":[]"#;
        check(
            &format!(r#","status":{{{rules},"incomplete":false}}"#),
            Some(true),
        );
        check(
            r#","status":{"incomplete":false,"evaluationError":"a role is missing"}"#,
            Some(true),
        );
        check(
            &format!(r#","status":{{{rules},"incomplete":true}}"#),
            Some(false),
        );
        check("", Some(false));
        check(r#","status":null"#, Some(false));
        check(&format!(r#","status":{{{rules}}}"#), None);
        check(r#","status":{"incomplete":"false"}"#, None);
    }
}
