//! Reviews: resources that are created and answered, never kept. They tell who a caller is and what a user may do, as
//! kube-apiserver tells it.

mod access;
mod counts;
mod identity;

use std::error::Error;
use std::sync::LazyLock;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::answer::{ApiBody, collected, content_type, json, refused, unknown_format};
use super::auth::Auth;
use super::kinds::ServedKind;
use super::{body, render};
use crate::auth::user::User;
use crate::protocol::status::{Status, StatusCause, StatusDetails};

pub use counts::{ReviewCounts, ReviewTotals};

/// The API groups of reviews.
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// A kind of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Review {
    /// Who sends this request.
    SelfSubject,
    /// Whom a token stands for.
    Token,
    /// What a user may do in one namespace.
    LocalSubjectAccess,
    /// What the sender may do.
    SelfSubjectAccess,
    /// What a user may do.
    SubjectAccess,
}

/// All of them, in the order of discovery.
const ALL: [Review; 5] = [
    Review::SelfSubject,
    Review::Token,
    Review::LocalSubjectAccess,
    Review::SelfSubjectAccess,
    Review::SubjectAccess,
];

static KINDS: LazyLock<Vec<ServedKind>> = LazyLock::new(|| {
    let kind = |review: Review| {
        let (group, plural, kind) = review.names();
        let namespaced = review == Review::LocalSubjectAccess;
        ServedKind::review(group, plural, kind, namespaced)
    };
    ALL.into_iter().map(kind).collect()
});

impl Review {
    /// Group, plural name and kind.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::SelfSubject => (AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview"),
            Self::Token => (AUTHENTICATION, "tokenreviews", "TokenReview"),
            Self::LocalSubjectAccess => (
                AUTHORIZATION,
                "localsubjectaccessreviews",
                "LocalSubjectAccessReview",
            ),
            Self::SelfSubjectAccess => (
                AUTHORIZATION,
                "selfsubjectaccessreviews",
                "SelfSubjectAccessReview",
            ),
            Self::SubjectAccess => (AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview"),
        }
    }

    /// The review that a path names: of these segments behind group and version.
    pub(super) fn of(group: &str, version: &str, plural: &str) -> Option<Self> {
        let is_named = |review: &Self| {
            let (its_group, its_plural, _) = review.names();
            (group, version, plural) == (its_group, "v1", its_plural)
        };
        ALL.into_iter().find(is_named)
    }

    /// The plural name.
    pub(super) const fn plural(self) -> &'static str {
        self.names().1
    }

    /// Whether a plural name is that of a review.
    pub(super) fn is_plural(name: &str) -> bool {
        ALL.iter().any(|review| review.plural() == name)
    }

    /// Group and version, and the kind.
    pub(super) fn type_names(self) -> (String, &'static str) {
        let (group, _, kind) = self.names();
        (format!("{group}/v1"), kind)
    }

    fn kind(self) -> &'static ServedKind {
        let place = ALL.iter().position(|review| *review == self);
        &KINDS[place.unwrap_or_default()]
    }
}

/// The kinds of reviews, for discovery.
pub(super) fn kinds() -> &'static [ServedKind] {
    &KINDS
}

/// Where a review is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReviewEndpoint {
    pub(super) review: Review,
    /// Empty for none.
    pub(super) namespace: String,
}

/// What the path of a review leads to.
///
/// # Errors
/// What kube-apiserver's routing says: reviews are created, in a namespace if their kind has one, and have no names.
pub(super) fn place(
    review: Review,
    namespace: &str,
    has_name: bool,
    method: &Method,
) -> Result<ReviewEndpoint, Status> {
    let is_namespaced = review.kind().resource.namespaced;
    if has_name || is_namespaced == namespace.is_empty() {
        return Err(Status::unknown_resource());
    }
    if method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    Ok(ReviewEndpoint {
        review,
        namespace: namespace.to_owned(),
    })
}

/// What a review needs to know.
struct ReviewInput<'a> {
    auth: &'a Auth,
    counts: &'a ReviewCounts,
    /// Who asks.
    user: &'a User,
    place: ReviewEndpoint,
    /// The written object.
    object: Value,
}

/// Answers a review.
pub(super) async fn answer<B>(
    auth: &Auth,
    counts: &ReviewCounts,
    user: &User,
    place: ReviewEndpoint,
    request: Request<B>,
) -> Response<ApiBody>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match reviewed((auth, counts), user, place, request).await {
        Ok(answer) => json(StatusCode::CREATED, &answer),
        Err(refusal) => refused(&refusal),
    }
}

async fn reviewed<B>(
    (auth, counts): (&Auth, &ReviewCounts),
    user: &User,
    place: ReviewEndpoint,
    request: Request<B>,
) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    if !matches!(content_type(&head.headers), "" | "application/json") {
        return Err(unknown_format());
    }
    let body = collected(body).await?;
    let question = ReviewInput {
        auth,
        counts,
        user,
        object: body::decode(place.review.kind(), &body)?,
        place,
    };
    match question.place.review {
        Review::Token => question.token(),
        Review::SelfSubject => Ok(question.self_subject()),
        Review::LocalSubjectAccess | Review::SubjectAccess => question.subject_access(),
        Review::SelfSubjectAccess => question.self_subject_access(),
    }
}

/// An answered review; the order of keys is that of the Go structs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse<'a, S> {
    kind: &'a str,
    api_version: String,
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a Value>,
    status: S,
}

impl ReviewInput<'_> {
    fn kind(&self) -> &'static ServedKind {
        self.place.review.kind()
    }

    /// The spec; an absent one is empty.
    fn spec<T: DeserializeOwned>(&self) -> Result<T, Status> {
        let spec = self.object.get("spec").filter(|spec| !spec.is_null());
        let spec = spec.cloned().unwrap_or_else(|| Value::Object(Map::new()));
        serde_json::from_value(spec).map_err(|fault| {
            let kind = &self.kind().resource.kind;
            Status::bad_request(format!(
                "{kind} in version \"v1\" cannot be handled as a {kind}: {fault}"
            ))
        })
    }

    /// The object as it was written, with its status.
    fn answered<S: Serialize>(&self, status: S) -> Bytes {
        let resource = &self.kind().resource;
        let metadata = self.object.get("metadata");
        render::json(&ReviewResponse {
            kind: &resource.kind,
            api_version: resource.gvr.api_version(),
            metadata: metadata
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default(),
            spec: self.object.get("spec"),
            status,
        })
    }

    /// 422 as kube-apiserver words it: the kind is not named.
    fn invalid(&self, causes: Vec<StatusCause>) -> Status {
        let group = self.kind().resource.gvr.group.to_string();
        let subject = format!(".{group}");
        Status::invalid(
            &subject,
            StatusDetails {
                group,
                causes,
                ..StatusDetails::default()
            },
        )
    }
}
