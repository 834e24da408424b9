//! Who decides access questions, and the authorizer that sends access reviews to the API server.

use std::pin::Pin;
use std::sync::Arc;

use super::access_review::{AccessVerdict, ReviewAnswerError, review_of, self_review_of, verdict};
use super::question::{AccessQuestion, QuestionIdentity};
use super::upstream::{ReviewError, ReviewIdentity, ReviewPurpose, Reviewer};

/// Decides access questions. Tests replace it.
pub trait Authorizer: Send + Sync + std::fmt::Debug + 'static {
    /// Decides a question, by a review with this purpose if it needs one.
    fn decide<'a>(
        &'a self,
        question: &'a AccessQuestion,
        purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = Result<AccessVerdict, ReviewError>> + Send + 'a>>;
}

/// Decides each question by a review of the API server.
#[derive(Debug)]
pub struct UpstreamAuthorizer(Arc<Reviewer>);

impl UpstreamAuthorizer {
    /// An authorizer that sends its reviews with `reviewer`.
    #[must_use]
    pub const fn new(reviewer: Arc<Reviewer>) -> Self {
        Self(reviewer)
    }

    async fn review(
        &self,
        question: &AccessQuestion,
        purpose: ReviewPurpose,
    ) -> Result<AccessVerdict, ReviewError> {
        let (user, access) = (&*question.subject, &question.key.access);
        let identity = match &question.identity {
            QuestionIdentity::Gateway => {
                let review = review_of(user, access);
                let answer = self.0.create(purpose, ReviewIdentity::Gateway, &review);
                return Ok(verdict(answer.await?.status)?);
            }
            QuestionIdentity::Impersonated => ReviewIdentity::Impersonated(user),
            QuestionIdentity::Caller {
                token,
                impersonation,
                ..
            } => ReviewIdentity::Caller {
                token: Some(token),
                impersonation,
            },
        };
        let review = self_review_of(access);
        let answer = self.0.create(purpose, identity, &review).await?;
        Ok(verdict(answer.status)?)
    }
}

impl Authorizer for UpstreamAuthorizer {
    fn decide<'a>(
        &'a self,
        question: &'a AccessQuestion,
        purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = Result<AccessVerdict, ReviewError>> + Send + 'a>> {
        Box::pin(self.review(question, purpose))
    }
}

impl From<ReviewAnswerError> for ReviewError {
    fn from(error: ReviewAnswerError) -> Self {
        Self::Malformed {
            reason: error.to_string(),
        }
    }
}
