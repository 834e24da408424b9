//! Reviews: resources that are created and answered but not stored. They return who a caller is or what a user may do, like
//! kube-apiserver's.

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

use super::answer::{ApiBody, collect_body, content_type, json, refused, unknown_format};
use super::auth::Auth;
use super::kinds::ServedKind;
use super::{body, render};
use crate::auth::user::User;
use crate::protocol::status::{Status, StatusCause, StatusDetails};

pub use counts::{ReviewCounts, ReviewTotals};

/// The API group of reviews of who a caller is.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// The API group of reviews of what a user may do.
const AUTHORIZATION: &str = "authorization.k8s.io";

/// A kind of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Review {
    /// `SelfSubjectReview`: who sends this request.
    SelfSubject,
    /// `TokenReview`: the user of a token.
    Token,
    /// `LocalSubjectAccessReview`: whether a user has an access in one namespace.
    LocalSubjectAccess,
    /// `SelfSubjectAccessReview`: whether the sender has an access.
    SelfSubjectAccess,
    /// `SubjectAccessReview`: whether a user has an access.
    SubjectAccess,
}

/// All kinds of reviews, in the order of discovery.
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

    /// The review with this group, version and plural name.
    pub(super) fn of(group: &str, version: &str, plural: &str) -> Option<Self> {
        let is_named = |review: &Self| {
            let (review_group, review_plural, _) = review.names();
            (group, version, plural) == (review_group, "v1", review_plural)
        };
        ALL.into_iter().find(is_named)
    }

    pub(super) const fn plural(self) -> &'static str {
        self.names().1
    }

    /// Whether this is the plural name of a review.
    pub(super) fn is_plural(name: &str) -> bool {
        ALL.iter().any(|review| review.plural() == name)
    }

    /// `apiVersion` and `kind`.
    pub(super) fn type_names(self) -> (String, &'static str) {
        let (group, _, kind) = self.names();
        (format!("{group}/v1"), kind)
    }

    fn kind(self) -> &'static ServedKind {
        let index = ALL.iter().position(|review| *review == self);
        &KINDS[index.unwrap_or_default()]
    }
}

/// The kinds of reviews, for discovery.
pub(super) fn kinds() -> &'static [ServedKind] {
    &KINDS
}

/// The path of a review: its kind and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReviewEndpoint {
    pub(super) review: Review,
    /// Empty for reviews that are not namespaced.
    pub(super) namespace: String,
}

/// The endpoint of a request to the path of a review.
///
/// # Errors
/// kube-apiserver's routing errors: 404 for a name or the wrong scope, 405 for a method other than POST.
pub(super) fn endpoint(
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

/// A review to answer, with the data that the answer depends on.
struct ReviewInput<'a> {
    auth: &'a Auth,
    counts: &'a ReviewCounts,
    /// The sender.
    user: &'a User,
    endpoint: ReviewEndpoint,
    /// The review as the client sent it.
    object: Value,
}

/// Answers the creation of a review: 201 with its status, or an error.
pub(super) async fn answer<B>(
    auth: &Auth,
    counts: &ReviewCounts,
    user: &User,
    endpoint: ReviewEndpoint,
    request: Request<B>,
) -> Response<ApiBody>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match review_response((auth, counts), user, endpoint, request).await {
        Ok(answer) => json(StatusCode::CREATED, &answer),
        Err(refusal) => refused(&refusal),
    }
}

async fn review_response<B>(
    (auth, counts): (&Auth, &ReviewCounts),
    user: &User,
    endpoint: ReviewEndpoint,
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
    let body = collect_body(body).await?;
    let input = ReviewInput {
        auth,
        counts,
        user,
        object: body::decode(endpoint.review.kind(), &body)?,
        endpoint,
    };
    match input.endpoint.review {
        Review::Token => input.token(),
        Review::SelfSubject => Ok(input.self_subject()),
        Review::LocalSubjectAccess | Review::SubjectAccess => input.subject_access(),
        Review::SelfSubjectAccess => input.self_subject_access(),
    }
}

/// A review with its status. The order of the fields is that of the Go structs.
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
        self.endpoint.review.kind()
    }

    /// Decodes the spec; an absent spec counts as empty.
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

    /// The review as the client sent it, with a status.
    fn with_status<S: Serialize>(&self, status: S) -> Bytes {
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

    /// 422 with kube-apiserver's message, which does not name the kind.
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
