//! Verdicts about what the API server says of itself and of its lists.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::verdict::CheckVerdict;
use super::words::counted;

/// The oldest minor version that the gateway's requests are known to work with: older ones have no discovery in two documents and no
/// SelfSubjectReview. Nothing older than this is supported by Kubernetes either.
const OLDEST_MINOR: u32 = 28;

/// What to do if requests are refused or fail because there are too many.
pub(super) const LOAD_HINT: &str = "look at the API server's load, and at proxies on the way";

/// What `/version` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServerVersion {
    pub(super) major: String,
    pub(super) minor: String,
    pub(super) git_version: String,
}

impl ServerVersion {
    /// Managed clusters write `32+`.
    fn minor_number(&self) -> Option<u32> {
        let digits = self.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse().ok()
    }
}

/// Whether the gateway supports the version.
pub(super) fn version_verdict(version: &ServerVersion) -> CheckVerdict {
    let ServerVersion {
        major,
        minor,
        git_version,
    } = version;
    match (major.as_str(), version.minor_number()) {
        ("1", Some(number)) if number < OLDEST_MINOR => CheckVerdict::warning(
            format!("{git_version} is older than 1.{OLDEST_MINOR}"),
            "upgrade the API server, or test lists and watches of your clients before you rely on the gateway",
        ),
        ("1", Some(_)) => CheckVerdict::ok(format!("Kubernetes {git_version}")),
        _ => CheckVerdict::failure(
            format!("{major}.{minor} ({git_version}) is no version of Kubernetes 1.x"),
            "point the gateway at a kube-apiserver",
        ),
    }
}

/// A list, as far as checks read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ListHead {
    #[serde(default)]
    pub(super) metadata: ListHeadMetadata,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) items: Vec<ObjectHead>,
}

/// The metadata of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListHeadMetadata {
    pub(super) resource_version: String,
}

/// An object of a list, or of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ObjectHead {
    #[serde(default)]
    pub(super) metadata: ObjectHeadMetadata,
}

/// The metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectHeadMetadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// Servers write `null` for what is empty.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl ObjectHead {
    /// Namespace and name.
    pub(super) fn key(&self) -> String {
        match self.metadata.namespace.as_str() {
            "" => self.metadata.name.clone(),
            namespace => format!("{namespace}/{}", self.metadata.name),
        }
    }
}

impl ListHead {
    /// The version as a number; `None` if it is none.
    pub(super) fn version(&self) -> Option<u64> {
        self.metadata.resource_version.parse().ok()
    }
}

/// Whether two lists of a resource state versions, the second one not older than the first.
pub(super) fn consistency_verdict(first: &ListHead, second: &ListHead) -> CheckVerdict {
    let (Some(earlier), Some(later)) = (first.version(), second.version()) else {
        let wrong = match first.version() {
            None => first,
            Some(_) => second,
        };
        return CheckVerdict::failure(
            format!(
                "a list states no version that is a number: {:?}",
                wrong.metadata.resource_version
            ),
            "the gateway compares versions: point it at a kube-apiserver",
        );
    };
    if later < earlier {
        return CheckVerdict::failure(
            format!("a list not older than version {earlier} is of version {later}"),
            "find out which server behind the address is behind the others: name the API servers with --api-servers",
        );
    }
    CheckVerdict::ok(format!("lists are of version {earlier} and {later}"))
}

/// What several requests at a time were answered, by status.
pub(super) fn flow_verdict(statuses: &[u16], has_flow_schema: bool) -> CheckVerdict {
    let refused = statuses.iter().filter(|status| **status == 429).count();
    let failed = statuses.iter().filter(|status| **status >= 500).count();
    let total = counted(statuses.len(), ("request", "requests"));
    if failed > 0 {
        let text = format!("{failed} of {total} at the same time got a server error");
        return CheckVerdict::failure(text, LOAD_HINT);
    }
    if refused > 0 {
        return CheckVerdict::warning(
            format!("{refused} of {total} at the same time got 429"),
            "give the gateway's identity a FlowSchema with a priority level of its own, so that its watches and reviews are not refused",
        );
    }
    let fairness = if has_flow_schema {
        "priority and fairness is on"
    } else {
        "it names no flow schema"
    };
    CheckVerdict::ok(format!(
        "{total} at the same time got an answer; {fairness}"
    ))
}
