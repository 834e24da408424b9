//! Reviews: questions to the API server about callers and their rights. An answer comes in time, is of bounded length and makes
//! sense, or there is an error; nothing is concluded from less.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::caller::{BearerToken, Caller, Credential};
use super::impersonation;
use super::user::User;
use crate::upstream::client::{Client, RequestBody, ResponseBody, SendError};

/// Whose name a review is sent in.
#[derive(Clone, Copy, Debug)]
pub enum ReviewIdentity<'a> {
    /// The gateway's.
    Gateway,
    /// A user's, whom the gateway impersonates.
    Impersonated(&'a User),
    /// The caller's own. Nothing of the gateway goes with it.
    Caller {
        /// None for anonymous callers.
        token: Option<&'a BearerToken>,
        /// The request's headers that impersonate somebody; others among them are left out.
        impersonation: &'a HeaderMap,
    },
}

impl<'a> ReviewIdentity<'a> {
    /// The identity in which upstream answers for this caller: its own credentials, or the gateway's where the caller's do not
    /// travel.
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

/// What a review is for. Whoever asks has places for its purpose (the token cache, the memory of decisions, the checks of open
/// streams), so that a flood of unknown tokens delays nobody who is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewPurpose {
    /// To learn who is calling.
    Authentication,
    /// To learn what a caller may do.
    Authorization,
    /// To learn whether open streams may go on.
    Recheck,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The API server cannot be reached, is late, or cannot answer now.
    #[error("the API server does not answer reviews: {reason}")]
    Unavailable {
        /// In one line.
        reason: String,
    },
    /// 401: the credentials of the review do not count.
    #[error("the API server refuses the credentials of a review")]
    Unauthorized,
    /// 403 to a review in the gateway's name: it may not ask.
    #[error("the API server forbids a review: {message}")]
    Forbidden {
        /// In the API server's words, cut off if long.
        message: String,
    },
    /// 403 to a review in a caller's own name: it may not ask about itself, or not impersonate.
    #[error("the API server does not let the caller ask about itself")]
    SelfReviewForbidden,
    /// The answer makes no sense.
    #[error("the API server's answer to a review makes no sense: {reason}")]
    Malformed {
        /// In one line.
        reason: String,
    },
    /// The user cannot be impersonated: its name, a group or the like does not fit into a header.
    #[error(transparent)]
    Unsendable(#[from] impersonation::UnsendableUser),
}

/// Sends reviews.
pub struct Reviewer {
    upstream: Client,
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reviewer").finish_non_exhaustive()
    }
}

impl Reviewer {
    /// Sends them to this API server.
    #[must_use]
    pub const fn new(upstream: Client) -> Self {
        Self { upstream }
    }

    /// Creates a review and returns it as the API server has filled it in.
    ///
    /// # Errors
    /// [`ReviewError`] if there is no answer.
    pub async fn create<R>(
        &self,
        purpose: ReviewPurpose,
        identity: ReviewIdentity<'_>,
        review: &R,
    ) -> Result<R, ReviewError>
    where
        R: Resource + Serialize + DeserializeOwned,
    {
        let request = request(identity, review)?;
        let answer = self.exchange(purpose, identity, request);
        let answer = tokio::time::timeout(REVIEW_TIMEOUT, answer).await;
        let answer = answer.map_err(|_elapsed| unavailable("no answer in time".to_owned()))??;
        read(&answer)
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
            // API servers close an HTTP/2 connection after credentials that they do not take, with the reviews of others on it.
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
        let response = response.map_err(|error| unavailable(chain(&error)))?;
        match (identity, answer(response).await) {
            (
                ReviewIdentity::Impersonated(_) | ReviewIdentity::Caller { .. },
                Err(ReviewError::Forbidden { .. }),
            ) => Err(ReviewError::SelfReviewForbidden),
            (_, answer) => answer,
        }
    }
}

fn request<R>(identity: ReviewIdentity<'_>, review: &R) -> Result<Request<Bytes>, ReviewError>
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
        ReviewIdentity::Impersonated(user) => *headers = impersonation::headers(user)?,
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

/// Reads an answer that says what it is: types of k8s-openapi take one that does not say so for their own.
fn read<R: Resource + DeserializeOwned>(answer: &[u8]) -> Result<R, ReviewError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        api_version: String,
        kind: String,
    }
    let unreadable = |error: serde_json::Error| malformed(error.to_string());
    let Kind { api_version, kind } = serde_json::from_slice(answer).map_err(unreadable)?;
    if (&*api_version, &*kind) != (R::API_VERSION, R::KIND) {
        return Err(malformed("it is of another kind".to_owned()));
    }
    serde_json::from_slice(answer).map_err(unreadable)
}

async fn answer(response: Response<ResponseBody>) -> Result<Bytes, ReviewError> {
    let status = response.status();
    let body = async {
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX);
        let whole = body.collect().await;
        let whole = whole.map_err(|error| unavailable(format!("its answer broke off: {error}")))?;
        Ok(whole.to_bytes())
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

/// The message of a `StatusMessage`; empty if it is none.
fn message(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct StatusMessage {
        message: String,
    }
    let status = serde_json::from_slice::<StatusMessage>(body);
    let text = status.map_or_else(|_| String::new(), |status| status.message);
    text.chars().take(MESSAGE_LEN_MAX).collect()
}

fn chain(error: &SendError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next.filter(|_| text.len() < MESSAGE_LEN_MAX) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

const fn unavailable(reason: String) -> ReviewError {
    ReviewError::Unavailable { reason }
}

const fn malformed(reason: String) -> ReviewError {
    ReviewError::Malformed { reason }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// As the API server's own webhooks have it by default.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// A user has some groups, a reason some words. What is longer is no answer.
const ANSWER_LEN_MAX: usize = 1 << 20;

const MESSAGE_LEN_MAX: usize = 1024;

#[cfg(test)]
mod tests;
