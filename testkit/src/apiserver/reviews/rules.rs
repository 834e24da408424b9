//! The rules of a user, as far as the authorizers can tell them.

use serde::Serialize;

use crate::apiserver::auth::{Rule, UserRules};

/// The status of a SelfSubjectRulesReview. The order of the fields is that of the Go structs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RulesStatus<'a> {
    resource_rules: Vec<ResourceRule<'a>>,
    non_resource_rules: Vec<NonResourceRule<'a>>,
    incomplete: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    evaluation_error: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceRule<'a> {
    verbs: &'a [String],
    api_groups: &'a [String],
    resources: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    resource_names: &'a [String],
}

#[derive(Serialize)]
struct NonResourceRule<'a> {
    verbs: &'a [String],
    #[serde(rename = "nonResourceURLs")]
    paths: &'a [String],
}

impl<'a> RulesStatus<'a> {
    pub(super) fn of(rules: &'a UserRules) -> Self {
        let of_paths = |rule: &&Rule| !rule.paths.is_empty();
        let resource_rules = rules.rules.iter().filter(|rule| !rule.resources.is_empty());
        Self {
            resource_rules: resource_rules
                .map(|rule| ResourceRule {
                    verbs: &rule.verbs,
                    api_groups: &rule.api_groups,
                    resources: &rule.resources,
                    resource_names: &rule.resource_names,
                })
                .collect(),
            non_resource_rules: rules
                .rules
                .iter()
                .filter(of_paths)
                .map(|rule| NonResourceRule {
                    verbs: &rule.verbs,
                    paths: &rule.paths,
                })
                .collect(),
            incomplete: !rules.unresolved.is_empty(),
            evaluation_error: rules.unresolved,
        }
    }
}
