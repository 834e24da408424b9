//! Reviews: who a caller is, and what a user may do. They are answered and counted, not stored.

mod counts;
mod rules;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::auth::{Access, Auth, ResourceAccess, User};
use super::json;
use super::kinds::ServedKind;
use super::status::Status;

use rules::RulesStatus;

pub use counts::{ReviewCounts, ReviewTotals};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// A kind of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Review {
    /// Who sends the request.
    SelfSubject,
    /// The user of a token.
    Token,
    /// Whether a user has access in one namespace.
    LocalSubjectAccess,
    /// Whether the sender has access.
    SelfSubjectAccess,
    /// Which rules the sender has in a namespace.
    SelfSubjectRules,
    /// Whether a user has access.
    SubjectAccess,
}

/// In the order of discovery.
const ALL: [(Review, &str, &str, &str); 6] = [
    (
        Review::SelfSubject,
        AUTHENTICATION,
        "selfsubjectreviews",
        "SelfSubjectReview",
    ),
    (Review::Token, AUTHENTICATION, "tokenreviews", "TokenReview"),
    (
        Review::LocalSubjectAccess,
        AUTHORIZATION,
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
    ),
    (
        Review::SelfSubjectAccess,
        AUTHORIZATION,
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
    ),
    (
        Review::SelfSubjectRules,
        AUTHORIZATION,
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
    ),
    (
        Review::SubjectAccess,
        AUTHORIZATION,
        "subjectaccessreviews",
        "SubjectAccessReview",
    ),
];

static KINDS: LazyLock<Vec<ServedKind>> = LazyLock::new(|| {
    let kinds = ALL.iter().map(|(review, group, plural, kind)| ServedKind {
        is_namespaced: *review == Review::LocalSubjectAccess,
        ..ServedKind::new(group, "v1", plural, kind)
    });
    kinds.collect()
});

impl Review {
    /// The review with this plural name.
    pub(super) fn of_plural(plural: &str) -> Option<Self> {
        let row = ALL.iter().find(|(_, _, name, _)| *name == plural)?;
        Some(row.0)
    }

    /// The review of a path.
    pub(super) fn of(group: &str, version: &str, plural: &str) -> Option<Self> {
        Self::of_plural(plural).filter(|review| {
            let kind = review.kind();
            kind.group == group && kind.version == version
        })
    }

    pub(super) fn kind(self) -> &'static ServedKind {
        let index = ALL.iter().position(|(review, ..)| *review == self);
        &KINDS[index.unwrap_or_default()]
    }
}

/// The kinds of all reviews, for discovery.
pub(super) fn kinds() -> &'static [ServedKind] {
    &KINDS
}

/// A review that is to be answered.
pub(super) struct ReviewRequest<'a> {
    pub(super) auth: &'a Auth,
    pub(super) counts: &'a ReviewCounts,
    pub(super) sender: &'a User,
    pub(super) review: Review,
    pub(super) namespace: &'a str,
    /// The review as the client sent it.
    pub(super) object: Value,
}

#[derive(Default, Deserialize)]
struct TokenSpec {
    token: Option<String>,
    audiences: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AccessSpec {
    resource_attributes: Option<Attributes>,
    non_resource_attributes: Option<Attributes>,
    user: Option<String>,
    groups: Option<Vec<String>>,
    uid: String,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

#[derive(Default, Deserialize)]
struct RulesSpec {
    namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Attributes {
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    path: String,
    field_selector: Option<SelectorAttributes>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SelectorAttributes {
    raw_selector: String,
}

#[derive(Serialize)]
struct TokenStatus<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    authenticated: bool,
    user: UserInfo<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    audiences: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Default, Serialize)]
struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a BTreeMap<String, Vec<String>>>,
}

impl<'a> UserInfo<'a> {
    fn of(user: &'a User) -> Self {
        Self {
            username: &user.name,
            uid: &user.uid,
            groups: &user.groups,
            extra: Some(&user.extra).filter(|extra| !extra.is_empty()),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SelfStatus<'a> {
    user_info: UserInfo<'a>,
}

#[derive(Serialize)]
struct AccessStatus {
    allowed: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// A review with its status. The order of the fields is that of the Go structs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a, S> {
    kind: &'a str,
    api_version: String,
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a Value>,
    status: S,
}

impl ReviewRequest<'_> {
    /// Answers the review.
    ///
    /// # Errors
    /// 400 for a review that cannot be read, 422 for one with faults.
    pub(super) fn answer(&self) -> Result<Bytes, Status> {
        match self.review {
            Review::Token => self.token(),
            Review::SelfSubject => {
                self.counts.record(self.review, self.sender.name.clone());
                let user_info = UserInfo::of(self.sender);
                Ok(self.with_status(SelfStatus { user_info }))
            }
            Review::LocalSubjectAccess | Review::SelfSubjectAccess | Review::SubjectAccess => {
                self.access()
            }
            Review::SelfSubjectRules => self.rules(),
        }
    }

    fn spec<T: DeserializeOwned + Default>(&self) -> Result<T, Status> {
        match self.object.get("spec") {
            None | Some(Value::Null) => Ok(T::default()),
            Some(spec) => serde_json::from_value(spec.clone()).map_err(|fault| {
                let kind = &self.review.kind().kind;
                Status::bad_request(format!(
                    "{kind} in version \"v1\" cannot be handled as a {kind}: {fault}"
                ))
            }),
        }
    }

    fn with_status<S: Serialize>(&self, status: S) -> Bytes {
        let kind = self.review.kind();
        let metadata = self.object["metadata"].as_object();
        let answer = Answer {
            kind: &kind.kind,
            api_version: kind.api_version(),
            metadata: metadata.cloned().unwrap_or_default(),
            spec: self.object.get("spec"),
            status,
        };
        json::compact(&answer).into()
    }

    fn token(&self) -> Result<Bytes, Status> {
        let spec: TokenSpec = self.spec()?;
        let token = spec.token.unwrap_or_default();
        if token.is_empty() {
            let message = "token is required for TokenReview in authentication";
            return Err(Status::bad_request(message));
        }
        let asked = spec.audiences.unwrap_or_default();
        let found = self.auth.review_token(&token, &asked);
        self.counts.record(self.review, token);
        Ok(match &found {
            Some((user, audiences)) => self.with_status(TokenStatus {
                authenticated: true,
                user: UserInfo::of(user),
                audiences,
                error: "",
            }),
            None => self.with_status(TokenStatus {
                authenticated: false,
                user: UserInfo::default(),
                audiences: &[],
                error: "invalid bearer token",
            }),
        })
    }

    fn access(&self) -> Result<Bytes, Status> {
        let mut spec: AccessSpec = self.spec()?;
        let user = if self.review == Review::SelfSubjectAccess {
            self.sender.clone()
        } else {
            User {
                name: spec.user.take().unwrap_or_default(),
                groups: spec.groups.take().unwrap_or_default(),
                uid: std::mem::take(&mut spec.uid),
                extra: spec.extra.take().unwrap_or_default(),
            }
        };
        self.check(&spec, &user)?;
        let access = match (spec.resource_attributes, spec.non_resource_attributes) {
            (Some(attributes), _) => Access::Resource(attributes.into_access()),
            (None, attributes) => {
                let Attributes { verb, path, .. } = attributes.unwrap_or_default();
                Access::Path { verb, path }
            }
        };
        let asked = match &access {
            Access::Path { verb, path } => format!("{verb} {path}"),
            Access::Resource(access) => format!(
                "{}/{}/{}/{}/{}/{}",
                access.verb,
                access.group,
                access.resource,
                access.subresource,
                access.namespace,
                access.name
            ),
        };
        self.counts
            .record(self.review, format!("{} {asked}", user.name));
        let decision = self.auth.authorize(&user, &access);
        Ok(self.with_status(AccessStatus {
            allowed: decision.is_allowed,
            reason: decision.reason,
        }))
    }

    fn rules(&self) -> Result<Bytes, Status> {
        let spec: RulesSpec = self.spec()?;
        let namespace = spec.namespace.unwrap_or_default();
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        self.counts.record(self.review, self.sender.name.clone());
        let rules = self.auth.rules(self.sender, &namespace);
        Ok(self.with_status(RulesStatus::of(&rules)))
    }

    /// 422 for a review with faults. The texts are not kube-apiserver's.
    fn check(&self, spec: &AccessSpec, user: &User) -> Result<(), Status> {
        let attributes = spec.resource_attributes.as_ref();
        let is_local = self.review == Review::LocalSubjectAccess;
        let rule = if attributes.is_some() == spec.non_resource_attributes.is_some() {
            "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        } else if user.name.is_empty() && user.groups.is_empty() {
            "at least one of user or group must be specified"
        } else if is_local && attributes.is_none_or(|it| it.namespace != self.namespace) {
            "must be about resources in the namespace of the request"
        } else {
            return Ok(());
        };
        Err(Status::invalid(rule))
    }
}

impl Attributes {
    fn into_access(self) -> ResourceAccess {
        ResourceAccess {
            verb: self.verb,
            group: self.group,
            resource: self.resource,
            subresource: self.subresource,
            namespace: self.namespace,
            name: self.name,
            field_selector: self.field_selector.unwrap_or_default().raw_selector,
        }
    }
}
