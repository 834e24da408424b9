//! Whose a token is, asked upstream: by a TokenReview in the gateway's name, or by a SelfSubjectReview in the caller's.

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

/// The user whose a token is; `None` if it does not count.
pub type TokenVerdict = Result<Option<Arc<User>>, ReviewError>;

/// Knows whose a token is.
pub trait TokenAuthenticator: Send + Sync + 'static {
    /// Whose it is now.
    fn authenticate<'a>(
        &'a self,
        token: &'a BearerToken,
        purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>>;
}

/// Whom the API server is asked as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenReviewMethod {
    /// The gateway, about the caller.
    TokenReview {
        /// A token must be meant for one of these; empty for the API server's own.
        audiences: Vec<String>,
    },
    /// The caller, about itself.
    SelfSubjectReview,
}

/// Asks the API server.
#[derive(Debug)]
pub struct UpstreamTokens {
    reviewer: Arc<Reviewer>,
    method: TokenReviewMethod,
    metrics: AuthenticationMetrics,
}

impl UpstreamTokens {
    /// Asks by this method.
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

    async fn ask(&self, token: &BearerToken, purpose: ReviewPurpose) -> TokenVerdict {
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
            let verdict = self.ask(token, purpose).await;
            let metrics = &self.metrics;
            metrics
                .review_duration
                .observe(started_at.elapsed().as_secs_f64());
            metrics.reviews.inc(match &verdict {
                Ok(Some(_)) => TokenReviewOutcome::Authenticated,
                Ok(None) => TokenReviewOutcome::Rejected,
                Err(ReviewError::SelfReviewForbidden) => TokenReviewOutcome::SelfReviewForbidden,
                Err(error) => {
                    tracing::debug!(%error, "a token was not reviewed");
                    TokenReviewOutcome::Failed
                }
            });
            verdict
        })
    }
}

/// What an answer to a TokenReview means.
///
/// # Errors
/// [`ReviewError::Malformed`].
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
    // A server that names no audience does not know of them.
    if !audiences.is_empty() && !confirmed.iter().any(|one| audiences.contains(one)) {
        return Ok(None);
    }
    known(user).map(Some)
}

/// What an answer to a SelfSubjectReview means.
///
/// # Errors
/// [`ReviewError::Malformed`].
pub fn self_reviewed(answer: SelfSubjectReview) -> TokenVerdict {
    let status = answer.status.ok_or_else(|| malformed("it has no status"))?;
    let user = known(status.user_info)?;
    // Upstream has passed over the token. Nobody with a token is anonymous.
    Ok(Some(user).filter(|user| user.name != ANONYMOUS))
}

fn known(info: Option<UserInfo>) -> Result<Arc<User>, ReviewError> {
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
