//! Sends reviews to the API server: who a caller is, and what it may do. Time and length of a response are bounded. A response that is
//! late, too long or invalid is an error, and callers of this module treat it neither as permission nor as denial.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::{Instrument, trace_span};

use super::caller::{BearerToken, Caller, Credential};
use super::impersonation::{self, Impersonator};
use super::user::User;
use crate::error_chain::one_line;
use crate::telemetry::SPAN_TARGET;
use crate::upstream::client::{Client, RequestBody, ResponseBody};

/// The identity in whose name a review is sent.
#[derive(Clone, Copy, Debug)]
pub enum ReviewIdentity<'a> {
    /// The gateway's own.
    Gateway,
    /// A user whom the gateway impersonates.
    Impersonated(&'a User),
    /// The caller's own. No credential of the gateway is sent.
    Caller {
        /// The caller's token; `None` for anonymous callers.
        token: Option<&'a BearerToken>,
        /// Headers of the caller's request. Only the impersonation headers among them are sent.
        impersonation: &'a HeaderMap,
    },
}

impl<'a> ReviewIdentity<'a> {
    /// The identity for reviews in this caller's name: its own credentials, or impersonation by the gateway if the gateway cannot send
    /// them upstream.
    #[must_use]
    pub fn of(caller: &'a Caller) -> Self {
        let token = match &caller.credential {
            Credential::Anonymous => None,
            Credential::Token(token) => Some(token),
            Credential::Certificate(_) | Credential::FrontProxy(_) => {
                return Self::Impersonated(&caller.user);
            }
        };
        Self::Caller {
            token,
            impersonation: &caller.impersonation,
        }
    }
}

/// The purpose of a review. Each purpose has its own permits (in the token cache, in the decisions, in the rechecks of open streams), so
/// that a flood of unknown tokens does not delay authenticated callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewPurpose {
    /// Authenticates a caller.
    Authentication,
    /// Authorizes a request.
    Authorization,
    /// Checks whether open streams are still permitted.
    Recheck,
}

/// Why a review has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The API server cannot be reached, did not respond in time, or responded with an unexpected status.
    #[error("no result of a review: {reason}")]
    Unavailable {
        /// The reason, in one line.
        reason: String,
    },
    /// Too many other reviews wait, of this client or of all, or its turn did not come in time.
    #[error("too many reviews wait")]
    Busy,
    /// 401: the API server rejected the credentials of the review.
    #[error("the API server rejected the credentials of a review")]
    Unauthorized,
    /// 403 to a review in the gateway's name: the gateway may not create reviews.
    #[error("the API server does not allow the gateway to create a review: {message}")]
    Forbidden {
        /// The API server's message, truncated to 1024 characters.
        message: String,
    },
    /// 403 to a review in a caller's name, or in that of a user whom the gateway impersonates: it may not create reviews of itself, or
    /// the impersonation is not allowed.
    #[error("the API server does not allow the caller to create a review of itself")]
    SelfReviewForbidden,
    /// The response is not a valid review.
    #[error("the API server's response to a review is invalid: {reason}")]
    Malformed {
        /// The reason, in one line.
        reason: String,
    },
    /// The user cannot be impersonated: its name, or another part, does not fit into a header.
    #[error(transparent)]
    Unsendable(#[from] impersonation::UnsendableUser),
}

/// Sends reviews to the API server.
pub struct Reviewer {
    upstream: Client,
    impersonator: Impersonator,
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reviewer").finish_non_exhaustive()
    }
}

impl Reviewer {
    /// A reviewer that sends to this API server.
    #[must_use]
    pub fn new(upstream: Client) -> Self {
        Self {
            upstream,
            impersonator: Impersonator::default(),
        }
    }

    /// Sets what writes the headers by which the gateway acts as users.
    #[must_use]
    pub fn impersonating(self, impersonator: Impersonator) -> Self {
        Self {
            impersonator,
            ..self
        }
    }

    /// Creates a review and returns the API server's response: the same object with its status.
    ///
    /// # Errors
    /// [`ReviewError`] if there is no valid response within 10 s.
    pub async fn create<R>(
        &self,
        purpose: ReviewPurpose,
        identity: ReviewIdentity<'_>,
        review: &R,
    ) -> Result<R, ReviewError>
    where
        R: Resource + Serialize + DeserializeOwned,
    {
        let span = trace_span!(
            target: SPAN_TARGET,
            "review",
            otel.kind = "client",
            resource = R::KIND,
            outcome = tracing::field::Empty
        );
        let body = self.exchange(purpose, identity, self.request(identity, review)?);
        let body = tokio::time::timeout(REVIEW_TIMEOUT, body)
            .instrument(span.clone())
            .await;
        let is_answered = matches!(body, Ok(Ok(_)));
        span.record("outcome", if is_answered { "answered" } else { "failed" });
        let body = body.map_err(|_elapsed| unavailable("the review timed out".to_owned()))??;
        parse(&body)
    }

    fn request<R>(
        &self,
        identity: ReviewIdentity<'_>,
        review: &R,
    ) -> Result<Request<Bytes>, ReviewError>
    where
        R: Resource + Serialize,
    {
        let body = serde_json::to_vec(review).map_err(|error| malformed(error.to_string()))?;
        let path = format!("/apis/{}/{}", R::API_VERSION, R::URL_PATH_SEGMENT);
        let mut request = Request::post(path)
            .body(Bytes::from(body))
            .map_err(|error| malformed(error.to_string()))?;
        let headers = request.headers_mut();
        match identity {
            ReviewIdentity::Gateway => {}
            ReviewIdentity::Impersonated(user) => *headers = self.impersonator.headers(user)?,
            ReviewIdentity::Caller {
                token,
                impersonation,
            } => {
                *headers = impersonation::only(impersonation);
                if let Some(token) = token {
                    headers.insert(AUTHORIZATION, token.authorization().clone());
                }
            }
        }
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, JSON);
        Ok(request)
    }

    async fn exchange(
        &self,
        purpose: ReviewPurpose,
        identity: ReviewIdentity<'_>,
        request: Request<Bytes>,
    ) -> Result<Bytes, ReviewError> {
        let response = match (identity, purpose) {
            (ReviewIdentity::Gateway | ReviewIdentity::Impersonated(_), _) => {
                self.upstream.send(request).await
            }
            // API servers close an HTTP/2 connection after invalid credentials, which would abort other callers' reviews on it. An
            // unknown token therefore has a connection of its own.
            (ReviewIdentity::Caller { .. }, ReviewPurpose::Authentication) => {
                let request = request.map(RequestBody::Full);
                self.upstream.send_as_caller_apart(request).await
            }
            (
                ReviewIdentity::Caller { .. },
                ReviewPurpose::Authorization | ReviewPurpose::Recheck,
            ) => {
                let request = request.map(RequestBody::Full);
                self.upstream.send_as_caller(request).await
            }
        };
        let response = response.map_err(|error| unavailable(one_line(&error)))?;
        match (identity, read_body(response).await) {
            (
                ReviewIdentity::Impersonated(_) | ReviewIdentity::Caller { .. },
                Err(ReviewError::Forbidden { .. }),
            ) => Err(ReviewError::SelfReviewForbidden),
            (_, result) => result,
        }
    }
}

/// Parses a response of the expected kind. The kind is checked here because types of k8s-openapi also accept objects without one.
fn parse<R: Resource + DeserializeOwned>(body: &[u8]) -> Result<R, ReviewError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        api_version: String,
        kind: String,
    }
    let Kind { api_version, kind } =
        serde_json::from_slice(body).map_err(|error| malformed(error.to_string()))?;
    if (&*api_version, &*kind) != (R::API_VERSION, R::KIND) {
        return Err(malformed("it is of another kind".to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| malformed(error.to_string()))
}

/// The body of a successful response; an error for any other status.
async fn read_body(response: Response<ResponseBody>) -> Result<Bytes, ReviewError> {
    let status = response.status();
    let body = async {
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX)
            .collect()
            .await;
        let body = body.map_err(|error| {
            unavailable(format!(
                "the response could not be read to its end: {error}"
            ))
        })?;
        Ok(body.to_bytes())
    };
    match status {
        _ if status.is_success() => body.await,
        StatusCode::UNAUTHORIZED => Err(ReviewError::Unauthorized),
        StatusCode::FORBIDDEN => Err(ReviewError::Forbidden {
            message: message(&body.await?),
        }),
        _ => Err(unavailable(format!("status {}", status.as_u16()))),
    }
}

/// The message of a Kubernetes `Status`; empty if the body is none.
fn message(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct StatusMessage {
        message: String,
    }
    let status = serde_json::from_slice::<StatusMessage>(body);
    status
        .map_or_else(|_| String::new(), |status| status.message)
        .chars()
        .take(MESSAGE_LEN_MAX)
        .collect()
}

const fn unavailable(reason: String) -> ReviewError {
    ReviewError::Unavailable { reason }
}

const fn malformed(reason: String) -> ReviewError {
    ReviewError::Malformed { reason }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Timeout of one review; the API server's webhooks have the same default.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a response in bytes. A longer one is an error.
const ANSWER_LEN_MAX: usize = 1 << 20;

/// Maximum length of a message in errors, in characters.
const MESSAGE_LEN_MAX: usize = 1024;

#[cfg(test)]
mod tests;
