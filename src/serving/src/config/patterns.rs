//! Decides which resources may be cached: two lists of patterns.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::kinds::is_version;
use crate::resource::Gvr;
use crate::resource::names::{is_dns_label, is_dns_subdomain};

/// A pattern does not have the required syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write resource, resource.group, resource.version or resource.version.group, such as secrets, leases.coordination.k8s.io, \
     *.v1.batch or *.*.example.com"
)]
pub struct InvalidPattern;

/// Matches resources by name, group and version; each can be a wildcard.
///
/// | pattern | matches |
/// |---|---|
/// | `*` | everything |
/// | `secrets`, `secrets.v1` | a resource of the core group, in all versions or in one |
/// | `*.v1` | the core group in version `v1` |
/// | `leases.coordination.k8s.io` | one resource in all versions |
/// | `*.v1beta1.apps` | all resources of a group in one version |
/// | `*.metrics.k8s.io` | all resources of a group |
/// | `*.*.example.com` | all resources of all groups that end in `.example.com` |
/// | `widgets.*` | the resource of this name in all groups |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePattern {
    /// The plural name; `None` for all.
    resource: Option<String>,
    /// The version; `None` for all.
    version: Option<String>,
    group: GroupPattern,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum GroupPattern {
    All,
    /// The group; empty for the core group.
    Exactly(String),
    /// Groups with this suffix, which begins with a dot.
    Below(String),
}

impl ResourcePattern {
    /// The pattern `*`, which matches everything.
    pub const ALL: Self = Self {
        resource: None,
        version: None,
        group: GroupPattern::All,
    };

    /// Whether the pattern matches a resource.
    #[must_use]
    pub fn covers(&self, gvr: &Gvr) -> bool {
        let matches =
            |pattern: &Option<String>, name: &str| pattern.as_deref().is_none_or(|one| one == name);
        matches(&self.resource, &gvr.resource)
            && matches(&self.version, &gvr.version)
            && match &self.group {
                GroupPattern::All => true,
                GroupPattern::Exactly(group) => **group == *gvr.group,
                GroupPattern::Below(suffix) => gvr.group.ends_with(&**suffix),
            }
    }
}

impl FromStr for ResourcePattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::ALL);
        }
        let (resource, rest) = match text.split_once('.') {
            Some((resource, rest)) => (resource, Some(rest)),
            None => (text, None),
        };
        if resource != "*" && !is_dns_label(resource) {
            return Err(InvalidPattern);
        }
        let (version, group) = match rest {
            None => (None, None),
            Some(rest) => match rest.split_once('.') {
                Some((version, group)) if is_version(version) => (Some(version), Some(group)),
                None if is_version(rest) => (Some(rest), None),
                Some(_) | None => (None, Some(rest)),
            },
        };
        Ok(Self {
            resource: (resource != "*").then(|| resource.to_owned()),
            version: version.map(str::to_owned),
            group: match group {
                None => GroupPattern::Exactly(String::new()),
                Some(group) => group.parse()?,
            },
        })
    }
}

impl FromStr for GroupPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::All);
        }
        match text.strip_prefix('*') {
            Some(suffix) if suffix.strip_prefix('.').is_some_and(is_dns_subdomain) => {
                Ok(Self::Below(suffix.to_owned()))
            }
            None if is_dns_subdomain(text) => Ok(Self::Exactly(text.to_owned())),
            Some(_) | None => Err(InvalidPattern),
        }
    }
}

impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource.as_deref().unwrap_or("*"))?;
        if let Some(version) = &self.version {
            write!(f, ".{version}")?;
        }
        match &self.group {
            // `*` alone already means all groups.
            GroupPattern::All if *self == Self::ALL => Ok(()),
            GroupPattern::All => f.write_str(".*"),
            GroupPattern::Exactly(group) if group.is_empty() => Ok(()),
            GroupPattern::Exactly(group) => write!(f, ".{group}"),
            GroupPattern::Below(suffix) => write!(f, ".*{suffix}"),
        }
    }
}

impl Serialize for ResourcePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ResourcePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The resources that may be cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLists {
    /// Resources that may be cached, unless `denied` matches.
    pub allowed: Vec<ResourcePattern>,
    /// Resources that are never cached.
    pub denied: Vec<ResourcePattern>,
}

impl CacheLists {
    /// Whether a resource may be cached. A match in `denied` always wins, however specific the patterns are.
    #[must_use]
    pub fn allow(&self, gvr: &Gvr) -> bool {
        let is_in = |list: &[ResourcePattern]| list.iter().any(|one| one.covers(gvr));
        is_in(&self.allowed) && !is_in(&self.denied)
    }

    /// Whether a pattern of `allowed` matches a resource and names its group. Wildcards that match many groups name none.
    #[must_use]
    pub fn name_group_of(&self, gvr: &Gvr) -> bool {
        let is_named = |one: &ResourcePattern| {
            matches!(one.group, GroupPattern::Exactly(_)) && one.covers(gvr)
        };
        self.allowed.iter().any(is_named)
    }
}

impl fmt::Display for CacheLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |list: &[ResourcePattern]| {
            let words: Vec<String> = list.iter().map(ToString::to_string).collect();
            match &*words {
                [] => "nothing".to_owned(),
                [..] => words.join(","),
            }
        };
        write!(f, "{} without {}", list(&self.allowed), list(&self.denied))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> ResourcePattern {
        text.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    fn patterns(text: &str) -> Vec<ResourcePattern> {
        let words = text.split(',').filter(|word| !word.is_empty());
        words.map(pattern).collect()
    }

    #[test]
    fn a_pattern_covers_what_it_says_and_nothing_else() {
        let known = [
            ("", "v1", "secrets"),
            ("", "v1", "pods"),
            ("apps", "v1", "deployments"),
            ("apps", "v1beta1", "deployments"),
            ("metrics.k8s.io", "v1beta1", "pods"),
            ("custom.metrics.k8s.io", "v1beta2", "values"),
            ("notmetrics.k8s.io", "v1", "pods"),
        ];
        for (text, covered) in [
            ("*", "1111111"),
            ("*.*", "1111111"),
            ("secrets", "1000000"),
            ("secrets.v1", "1000000"),
            ("secrets.v2", "0000000"),
            ("*.v1", "1100000"),
            ("pods", "0100000"),
            ("pods.*", "0100101"),
            ("deployments.apps", "0011000"),
            ("deployments.v1.apps", "0010000"),
            ("*.v1beta1.apps", "0001000"),
            ("*.v1beta1.*", "0001100"),
            ("*.metrics.k8s.io", "0000100"),
            ("*.*.metrics.k8s.io", "0000010"),
            ("*.*.k8s.io", "0000111"),
            ("deployments", "0000000"),
        ] {
            let covers: String = known
                .iter()
                .map(|(group, version, resource)| Gvr::new(group, version, resource))
                .map(|gvr| if pattern(text).covers(&gvr) { '1' } else { '0' })
                .collect();
            assert_eq!(covers, covered, "{text}");
        }
    }

    #[test]
    fn patterns_are_written_as_they_are_read() {
        for text in [
            "*",
            "secrets",
            "secrets.v1",
            "*.v1",
            "pods.*",
            "deployments.v1.apps",
            "*.v1beta1.*",
            "*.*.metrics.k8s.io",
            "widgets.v1.*.example.com",
        ] {
            assert_eq!(pattern(text).to_string(), text);
        }
        assert_eq!(pattern("*.*").to_string(), "*");
        for text in [
            "",
            ".",
            "Secrets",
            "sec*",
            "*secrets",
            "secrets.",
            "secrets.v1.",
            "secrets..apps",
            "*.*apps",
            "*.apps*",
            "*.a.*.b",
            "*.**",
            "secrets/v1",
            "pods.v1.v1.",
        ] {
            assert_eq!(
                text.parse::<ResourcePattern>(),
                Err(InvalidPattern),
                "{text}"
            );
        }
    }

    #[test]
    fn a_denial_goes_before_an_allowance() {
        let lists = |allowed, denied| CacheLists {
            allowed: patterns(allowed),
            denied: patterns(denied),
        };
        let (secrets, pods) = (Gvr::new("", "v1", "secrets"), Gvr::new("", "v1", "pods"));
        for (allowed, denied, secrets_allowed, pods_allowed) in [
            ("*", "secrets", false, true),
            ("*", "", true, true),
            ("secrets", "secrets", false, false),
            ("secrets.v1", "*", false, false),
            ("pods", "", false, true),
            ("", "", false, false),
        ] {
            let lists = lists(allowed, denied);
            let found = (lists.allow(&secrets), lists.allow(&pods));
            assert_eq!(found, (secrets_allowed, pods_allowed), "{lists}");
        }
    }

    #[test]
    fn secrets_tokens_and_metrics_are_not_kept_by_default() {
        let lists = CacheLists {
            allowed: patterns(crate::cli::CACHE_RESOURCES),
            denied: patterns(crate::cli::PASSTHROUGH_RESOURCES),
        };
        for (group, version, resource, allowed) in [
            ("", "v1", "secrets", false),
            ("", "v1", "serviceaccounts", true),
            ("", "v1", "configmaps", true),
            (
                "certificates.k8s.io",
                "v1",
                "certificatesigningrequests",
                true,
            ),
            ("oauth.openshift.io", "v1", "oauthclients", false),
            ("oauth.openshift.io", "v1", "oauthaccesstokens", false),
            ("management.cattle.io", "v3", "tokens", false),
            ("metrics.k8s.io", "v1beta1", "pods", false),
            ("custom.metrics.k8s.io", "v1beta2", "pods", false),
            ("external.metrics.k8s.io", "v1beta1", "queue", false),
        ] {
            let gvr = Gvr::new(group, version, resource);
            assert_eq!(lists.allow(&gvr), allowed, "{gvr}");
        }
    }
}
