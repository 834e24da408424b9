//! Reviews: resources that are created and answered but not stored. They return who a caller is or what a user may do, like
//! kube-apiserver's.

mod access;
mod counts;
mod identity;

use std::error::Error;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::auth::Auth;
use super::kinds::ServedKind;
use super::request_body::{collect_body, content_type, unknown_format};
use super::review_kinds::ReviewEndpoint;
use super::{body, render, response};
use crate::auth::user::User;
use crate::protocol::status::{Status, StatusCause, StatusDetails};

pub use super::review_kinds::Review;
pub use counts::{ReviewCounts, ReviewTotals};

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
) -> Response<Bytes>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match review_response((auth, counts), user, endpoint, request).await {
        Ok(answer) => response::json(StatusCode::CREATED, &answer),
        Err(refusal) => refusal.to_response(),
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
