//! Reviews tokens upstream: by a TokenReview that the gateway sends in its own name, or by a SelfSubjectReview in the caller's name.

use std::pin::Pin;
use std::sync::Arc;

use http::HeaderMap;
use k8s_openapi::api::authentication::v1::{
    SelfSubjectReview, TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo,
};
use tokio::time::Instant;

use super::caller::BearerToken;
use super::upstream::{ReviewError, ReviewIdentity, ReviewPurpose, Reviewer};
use super::user::{ANONYMOUS, User};
use crate::metrics::{AuthenticationMetrics, TokenReviewOutcome};

/// The user of a token; `None` if the token is not valid.
pub type TokenVerdict = Result<Option<Arc<User>>, ReviewError>;

/// Authenticates tokens. Tests replace it.
pub trait TokenAuthenticator: Send + Sync + 'static {
    /// The current user of a token.
    fn authenticate<'a>(
        &'a self,
        token: &'a BearerToken,
        purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>>;
}

/// Which review is sent, and in whose name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenReviewMethod {
    /// A TokenReview, in the gateway's name.
    TokenReview {
        /// A token must be for one of these audiences; empty for the audiences of the API server itself.
        audiences: Vec<String>,
    },
    /// A SelfSubjectReview, in the caller's name.
    SelfSubjectReview,
}

/// Authenticates tokens by reviews of the API server.
#[derive(Debug)]
pub struct UpstreamTokens {
    reviewer: Arc<Reviewer>,
    method: TokenReviewMethod,
    metrics: AuthenticationMetrics,
}

impl UpstreamTokens {
    /// Sends reviews of this kind with `reviewer`.
    #[must_use]
    pub const fn new(
        reviewer: Arc<Reviewer>,
        method: TokenReviewMethod,
        metrics: AuthenticationMetrics,
    ) -> Self {
        Self {
            reviewer,
            method,
            metrics,
        }
    }

    async fn review(&self, token: &BearerToken, purpose: ReviewPurpose) -> TokenVerdict {
        match &self.method {
            TokenReviewMethod::TokenReview { audiences } => {
                let review = TokenReview {
                    spec: TokenReviewSpec {
                        audiences: Some(audiences.clone()).filter(|all| !all.is_empty()),
                        token: token.secret().to_owned(),
                    },
                    ..TokenReview::default()
                };
                let answer = self
                    .reviewer
                    .create(purpose, ReviewIdentity::Gateway, &review)
                    .await?;
                reviewed(answer, audiences)
            }
            TokenReviewMethod::SelfSubjectReview => {
                let identity = ReviewIdentity::Caller {
                    token: Some(token),
                    impersonation: &HeaderMap::new(),
                };
                let review = SelfSubjectReview::default();
                match self.reviewer.create(purpose, identity, &review).await {
                    Ok(answer) => self_reviewed(answer),
                    Err(ReviewError::Unauthorized) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        }
    }
}

impl TokenAuthenticator for UpstreamTokens {
    fn authenticate<'a>(
        &'a self,
        token: &'a BearerToken,
        purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>> {
        Box::pin(async move {
            let started_at = Instant::now();
            let verdict = self.review(token, purpose).await;
            let metrics = &self.metrics;
            metrics
                .review_duration
                .observe(started_at.elapsed().as_secs_f64());
            metrics.reviews.inc(match &verdict {
                Ok(Some(_)) => TokenReviewOutcome::Authenticated,
                Ok(None) => TokenReviewOutcome::Rejected,
                Err(ReviewError::SelfReviewForbidden) => TokenReviewOutcome::SelfReviewForbidden,
                Err(error) => {
                    tracing::debug!(%error, "token review failed");
                    TokenReviewOutcome::Failed
                }
            });
            verdict
        })
    }
}

/// The verdict in the response to a TokenReview that requested these audiences.
///
/// # Errors
/// [`ReviewError::Malformed`] if it has no status, or authenticates a user without a name.
pub fn reviewed(answer: TokenReview, audiences: &[String]) -> TokenVerdict {
    let Some(TokenReviewStatus {
        audiences: confirmed,
        authenticated,
        error: _,
        user,
    }) = answer.status
    else {
        return Err(malformed("it has no status"));
    };
    if authenticated != Some(true) {
        return Ok(None);
    }
    let confirmed = confirmed.unwrap_or_default();
    // A server that confirms no audience has not checked them.
    if !audiences.is_empty() && !confirmed.iter().any(|one| audiences.contains(one)) {
        return Ok(None);
    }
    user_of(user).map(Some)
}

/// The verdict in the response to a SelfSubjectReview.
///
/// # Errors
/// [`ReviewError::Malformed`] if it has no status or no user with a name.
pub fn self_reviewed(answer: SelfSubjectReview) -> TokenVerdict {
    let status = answer.status.ok_or_else(|| malformed("it has no status"))?;
    let user = user_of(status.user_info)?;
    // The request had a token, so an anonymous user means that upstream ignored it.
    Ok(Some(user).filter(|user| user.name != ANONYMOUS))
}

fn user_of(info: Option<UserInfo>) -> Result<Arc<User>, ReviewError> {
    let info = info.ok_or_else(|| malformed("it names no user"))?;
    let user = User {
        name: info.username.unwrap_or_default(),
        uid: info.uid.unwrap_or_default(),
        groups: info.groups.unwrap_or_default(),
        extra: info.extra.unwrap_or_default(),
    };
    if user.name.is_empty() {
        return Err(malformed("its user has no name"));
    }
    Ok(Arc::new(user.authenticated()))
}

fn malformed(reason: &str) -> ReviewError {
    ReviewError::Malformed {
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests;
