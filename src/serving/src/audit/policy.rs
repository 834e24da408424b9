//! Decides which requests are recorded: a policy in the API server's own format, evaluated as the API server evaluates it. Pure.

mod file;

use super::event::{AuditStage, ObjectReference};
use crate::auth::user::User;
pub use file::PolicyError;

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditLevel {
    /// The request is not recorded.
    None,
    /// The user, the request and its result, without bodies.
    Metadata,
    /// Also the request's body. Recorded as [`AuditLevel::Metadata`]: lists and watches have no body.
    Request,
    /// Also the response's body. Recorded as [`AuditLevel::Metadata`]: lists are too large to be logged.
    RequestResponse,
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageSet(u8);

impl StageSet {
    /// Whether the set contains `stage`.
    #[must_use]
    pub const fn contains(self, stage: AuditStage) -> bool {
        self.0 & Self::bit(stage) != 0
    }

    const fn with(self, stage: AuditStage) -> Self {
        Self(self.0 | Self::bit(stage))
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn bit(stage: AuditStage) -> u8 {
        1 << stage as u8
    }
}

/// The properties of a request that a policy evaluates.
#[derive(Clone, Copy, Debug)]
pub struct AuditAttributes<'a> {
    /// The authenticated user before impersonation, if any.
    pub user: Option<&'a User>,
    /// The verb as authorization names it.
    pub verb: &'a str,
    /// The resource or path that the request is about.
    pub target: AuditTarget<'a>,
}

/// The resource or path that a request is about.
#[derive(Clone, Copy, Debug)]
pub enum AuditTarget<'a> {
    /// A resource or object.
    Object(&'a ObjectReference),
    /// A path that is not a resource's.
    Path(&'a str),
}

/// A policy's decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyVerdict {
    /// How much of the request is recorded.
    pub level: AuditLevel,
    /// Stages for which no event is written.
    pub omitted: StageSet,
}

/// A list of rules. The first rule that matches a request decides.
#[derive(Clone, Debug)]
pub struct AuditPolicy {
    rules: Vec<Rule>,
    omitted: StageSet,
}

/// One rule. A condition that is empty matches every request.
#[derive(Clone, Debug)]
struct Rule {
    verdict: PolicyVerdict,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    non_resource_urls: Vec<String>,
}

/// Resources of one API group; all of them if `resources` is empty.
#[derive(Clone, Debug)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

impl AuditPolicy {
    /// Whether a rule has a level above `Metadata`, which is the most that is recorded.
    #[must_use]
    pub fn exceeds_metadata(&self) -> bool {
        let levels = self.rules.iter().map(|rule| rule.verdict.level);
        levels
            .into_iter()
            .any(|level| matches!(level, AuditLevel::Request | AuditLevel::RequestResponse))
    }

    /// Decides about a request. A request that no rule matches is not recorded.
    #[must_use]
    pub fn evaluate(&self, attributes: AuditAttributes<'_>) -> PolicyVerdict {
        let first = self.rules.iter().find(|rule| rule.matches(attributes));
        first.map_or(
            PolicyVerdict {
                level: AuditLevel::None,
                omitted: self.omitted,
            },
            |rule| rule.verdict,
        )
    }
}

impl Rule {
    fn matches(&self, attributes: AuditAttributes<'_>) -> bool {
        let AuditAttributes { user, verb, target } = attributes;
        let is_user =
            self.users.is_empty() || user.is_some_and(|user| has(&self.users, &user.name));
        let is_member = |user: &User| {
            user.groups
                .iter()
                .any(|group| has(&self.user_groups, group))
        };
        if !is_user
            || !(self.user_groups.is_empty() || user.is_some_and(is_member))
            || !(self.verbs.is_empty() || has(&self.verbs, verb))
        {
            return false;
        }
        let needs_object = !self.namespaces.is_empty() || !self.resources.is_empty();
        match target {
            AuditTarget::Object(object) if needs_object => self.matches_object(object),
            AuditTarget::Path(path) if !needs_object && !self.non_resource_urls.is_empty() => {
                let mut urls = self.non_resource_urls.iter();
                urls.any(|url| matches_path(url, path))
            }
            AuditTarget::Object(_) => self.non_resource_urls.is_empty(),
            AuditTarget::Path(_) => !needs_object,
        }
    }

    fn matches_object(&self, object: &ObjectReference) -> bool {
        // The namespace of cluster-scoped resources is the empty string.
        let is_within = self.namespaces.is_empty() || has(&self.namespaces, &object.namespace);
        let mut groups = self.resources.iter();
        is_within && (self.resources.is_empty() || groups.any(|group| group.matches(object)))
    }
}

impl GroupResources {
    fn matches(&self, object: &ObjectReference) -> bool {
        if self.group != "*" && self.group != object.api_group {
            return false;
        }
        let is_named = self.names.is_empty() || has(&self.names, &object.name);
        let mut resources = self.resources.iter();
        self.resources.is_empty() || is_named && resources.any(|one| matches_resource(one, object))
    }
}

/// Whether `pattern` matches the resource or subresource: its name, `*`, `*/SUBRESOURCE` or `RESOURCE/*`, which also matches
/// the resource itself.
fn matches_resource(pattern: &str, object: &ObjectReference) -> bool {
    let ObjectReference {
        resource,
        subresource,
        ..
    } = object;
    let is_whole = if subresource.is_empty() {
        pattern == resource
    } else {
        pattern
            .strip_prefix(resource.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
            == Some(subresource)
    };
    let is_any_resource =
        || !subresource.is_empty() && pattern.strip_prefix("*/") == Some(subresource);
    let is_any_subresource = || pattern.strip_suffix("/*") == Some(resource);
    pattern == "*" || is_whole || is_any_resource() || is_any_subresource()
}

/// Whether a rule's URL, which may end in `*`, matches a path.
fn matches_path(url: &str, path: &str) -> bool {
    url == path || url.ends_with('*') && path.starts_with(url.trim_end_matches('*'))
}

fn has(all: &[String], one: &str) -> bool {
    all.iter().any(|known| known == one)
}

#[cfg(test)]
mod tests;
