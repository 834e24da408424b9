//! Metrics of authentication: credentials by authenticator, reviews of tokens, and the cache of tokens.

use prometheus::{Histogram, IntCounterVec, Registry};
use strum::{IntoStaticStr, VariantArray};

use super::authorization::ReviewCause;
use super::families::{ByLabel, MetricsError, Register};

/// Handles of authentication.
#[derive(Clone, Debug)]
pub struct AuthenticationMetrics {
    /// Requests with headers of front proxies, by outcome.
    pub front_proxy: ByLabel<AuthenticationOutcome>,
    /// Requests with client certificates, by outcome.
    pub certificate: ByLabel<AuthenticationOutcome>,
    /// Requests with bearer tokens, by outcome.
    pub token: ByLabel<AuthenticationOutcome>,
    /// Requests without credentials, by outcome.
    pub anonymous: ByLabel<AuthenticationOutcome>,
    /// Reviews of tokens by outcome.
    pub reviews: ByLabel<TokenReviewOutcome>,
    /// Duration of reviews, in seconds.
    pub review_duration: Histogram,
    /// Lookups in the cache of tokens, by result.
    pub token_cache: ByLabel<TokenCacheLookup>,
    /// Reviews of tokens that upstream got, by cause.
    pub reviews_by_cause: ByLabel<ReviewCause>,
}

/// The outcome of checking a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AuthenticationOutcome {
    /// The credential is valid and identifies the caller.
    Success,
    /// The credential is invalid.
    Failure,
    /// The check failed, so it is unknown whether the credential is valid.
    Error,
}

/// The outcome of a review of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TokenReviewOutcome {
    /// The token is valid.
    Authenticated,
    /// The token is invalid.
    Rejected,
    /// Upstream does not allow the caller to create a SelfSubjectReview.
    #[strum(serialize = "may_not_ask")]
    SelfReviewForbidden,
    /// Upstream did not answer, or its answer could not be used.
    Failed,
}

/// The result of a lookup in the cache of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TokenCacheLookup {
    /// The cache has the token's user.
    Hit,
    /// The token must be reviewed, or a review is in flight already.
    Miss,
}

/// In seconds: from half a millisecond to the timeout of a review.
const BUCKETS: [f64; 11] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0,
];

impl AuthenticationMetrics {
    pub(super) fn register(
        registry: &Registry,
        by_cause: &IntCounterVec,
    ) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let attempts = add.counters(
            "authentication_attempts_total",
            "Credentials of requests that memory may answer, by authenticator and outcome.",
            &["authenticator", "outcome"],
        )?;
        let of = |authenticator| ByLabel::resolve(&attempts, &[authenticator]);
        Ok(Self {
            front_proxy: of("front_proxy"),
            certificate: of("certificate"),
            token: of("token"),
            anonymous: of("anonymous"),
            reviews_by_cause: ByLabel::resolve(by_cause, &["token"]),
            reviews: add.by_label(
                "authentication_reviews_total",
                "Reviews of tokens by upstream, by outcome.",
                "outcome",
            )?,
            review_duration: add.histogram(
                "authentication_review_duration_seconds",
                "Time until upstream has reviewed a token.",
                &BUCKETS,
            )?,
            token_cache: add.by_label(
                "authentication_token_cache_lookups_total",
                "Lookups of tokens in the cache of tokens, by outcome.",
                "outcome",
            )?,
        })
    }
}
