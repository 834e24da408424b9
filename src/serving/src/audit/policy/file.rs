//! Parses a policy file: `kind: Policy` of `audit.k8s.io/v1`, in YAML or JSON, with the API server's own validation.
//!
//! Unknown fields are errors, while the API server only warns about them. A mistyped condition would make its rule match every
//! request, and if the rule has level `None`, nothing would be logged.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

use super::{AuditLevel, AuditPolicy, GroupResources, PolicyVerdict, Rule, StageSet};
use crate::audit::event::AuditStage;
use crate::resource::names::is_dns_subdomain;

const API_VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";

/// A mistake in a policy file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {message}")]
pub struct PolicyError {
    /// Line of the mistake, from 1.
    pub line: u64,
    /// What is wrong.
    pub message: String,
}

impl PolicyError {
    fn at<T>(value: &Spanned<T>, message: impl Into<String>) -> Self {
        Self {
            line: value.referenced.line(),
            message: message.into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyFile {
    api_version: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
    #[serde(rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    rules: Option<Vec<Spanned<RuleFile>>>,
    omit_stages: Option<Vec<Spanned<String>>>,
    /// Accepted and ignored: objects are never recorded.
    #[serde(rename = "omitManagedFields")]
    _omit_managed_fields: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleFile {
    level: Option<Spanned<String>>,
    users: Option<Vec<String>>,
    user_groups: Option<Vec<String>>,
    verbs: Option<Vec<String>>,
    resources: Option<Vec<Spanned<GroupResourcesFile>>>,
    namespaces: Option<Vec<String>>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Option<Vec<Spanned<String>>>,
    omit_stages: Option<Vec<Spanned<String>>>,
    #[serde(rename = "omitManagedFields")]
    _omit_managed_fields: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResourcesFile {
    group: Option<Spanned<String>>,
    resources: Option<Vec<String>>,
    resource_names: Option<Vec<String>>,
}

impl AuditPolicy {
    /// Parses a policy in YAML or JSON.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        parse(text)
    }
}

fn parse(text: &str) -> Result<AuditPolicy, PolicyError> {
    let first = |message: &str| PolicyError {
        line: 1,
        message: message.to_owned(),
    };
    let file: PolicyFile = serde_saphyr::from_str(text).map_err(|error| {
        let message = error.without_snippet().to_string();
        PolicyError {
            line: error.location().map_or(1, |location| location.line()),
            message: message.lines().next().unwrap_or("not YAML").to_owned(),
        }
    })?;
    for (value, expected) in [(&file.api_version, API_VERSION), (&file.kind, KIND)] {
        match value {
            Some(value) if value.value == expected => {}
            Some(value) => {
                let message = format!("write apiVersion: {API_VERSION} and kind: {KIND}");
                return Err(PolicyError::at(value, message));
            }
            None => return Err(first("no apiVersion or no kind")),
        }
    }
    let omitted = stages(file.omit_stages)?;
    let rules = file.rules.unwrap_or_default();
    if rules.is_empty() {
        return Err(first("a policy without rules"));
    }
    let rules = rules.into_iter().map(|rule| self::rule(rule, omitted));
    Ok(AuditPolicy {
        rules: rules.collect::<Result<_, _>>()?,
        omitted,
    })
}

fn rule(rule: Spanned<RuleFile>, omitted: StageSet) -> Result<Rule, PolicyError> {
    let missing = PolicyError::at(&rule, "a rule without a level");
    let RuleFile {
        level,
        users,
        user_groups,
        verbs,
        resources,
        namespaces,
        non_resource_urls,
        omit_stages,
        _omit_managed_fields,
    } = rule.value;
    let level = self::level(&level.ok_or(missing)?)?;
    let (resources, namespaces) = (
        resources.unwrap_or_default(),
        namespaces.unwrap_or_default(),
    );
    let urls = non_resource_urls.unwrap_or_default();
    if let Some(url) = urls.first()
        && !(resources.is_empty() && namespaces.is_empty())
    {
        let message = "rules cannot apply to both regular resources and non-resource URLs";
        return Err(PolicyError::at(url, message));
    }
    let resources = resources.into_iter().map(group_resources);
    Ok(Rule {
        verdict: PolicyVerdict {
            level,
            omitted: omitted.and(stages(omit_stages)?),
        },
        users: users.unwrap_or_default(),
        user_groups: user_groups.unwrap_or_default(),
        verbs: verbs.unwrap_or_default(),
        resources: resources.collect::<Result<_, _>>()?,
        namespaces,
        non_resource_urls: urls.into_iter().map(url).collect::<Result<_, _>>()?,
    })
}

fn level(text: &Spanned<String>) -> Result<AuditLevel, PolicyError> {
    Ok(match text.value.as_str() {
        "None" => AuditLevel::None,
        "Metadata" => AuditLevel::Metadata,
        "Request" => AuditLevel::Request,
        "RequestResponse" => AuditLevel::RequestResponse,
        "" => return Err(PolicyError::at(text, "a rule without a level")),
        other => {
            let message =
                format!("unknown level {other:?}: one of None, Metadata, Request, RequestResponse");
            return Err(PolicyError::at(text, message));
        }
    })
}

fn stages(names: Option<Vec<Spanned<String>>>) -> Result<StageSet, PolicyError> {
    let mut stages = StageSet::default();
    for name in names.unwrap_or_default() {
        let known = AuditStage::ALL
            .into_iter()
            .find(|stage| stage.as_str() == name.value);
        let stage = known.ok_or_else(|| {
            let message = format!(
                "unknown stage {:?}: one of RequestReceived, ResponseStarted, ResponseComplete, Panic",
                name.value
            );
            PolicyError::at(&name, message)
        })?;
        stages = stages.with(stage);
    }
    Ok(stages)
}

fn group_resources(file: Spanned<GroupResourcesFile>) -> Result<GroupResources, PolicyError> {
    let position = file.referenced;
    let GroupResourcesFile {
        group,
        resources,
        resource_names,
    } = file.value;
    if let Some(group) = &group
        && !matches!(group.value.as_str(), "" | "*")
        && !is_dns_subdomain(&group.value)
    {
        let message = format!("{:?} is not the name of an API group", group.value);
        return Err(PolicyError::at(group, message));
    }
    let resources = resources.unwrap_or_default();
    let names = resource_names.unwrap_or_default();
    if resources.is_empty() && !names.is_empty() {
        return Err(PolicyError {
            line: position.line(),
            message: "using resourceNames requires at least one resource".to_owned(),
        });
    }
    Ok(GroupResources {
        group: group.map(|group| group.value).unwrap_or_default(),
        resources,
        names,
    })
}

fn url(url: Spanned<String>) -> Result<String, PolicyError> {
    let text = url.value.as_str();
    if text != "*" {
        if !text.starts_with('/') {
            let message = "non-resource URL rules must begin with a '/' character";
            return Err(PolicyError::at(&url, message));
        }
        if text[..text.len() - 1].contains('*') {
            let message = "non-resource URL wildcards '*' must be the final character of the rule";
            return Err(PolicyError::at(&url, message));
        }
    }
    Ok(url.value)
}
