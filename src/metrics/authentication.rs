//! Metrics of authentication: credentials by authenticator, reviews of tokens, and the cache of tokens.

use prometheus::{Histogram, HistogramOpts, Registry};

use super::families::{ByLabel, MetricsError, Register};
use super::labels::Label;

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
}

/// The outcome of checking a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationOutcome {
    /// The credential is valid and identifies the caller.
    Success,
    /// The credential is invalid.
    Failure,
    /// The check failed, so it is unknown whether the credential is valid.
    Error,
}

impl Label for AuthenticationOutcome {
    const ALL: &'static [Self] = &[Self::Success, Self::Failure, Self::Error];

    fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Error => "error",
        }
    }
}

/// The outcome of a review of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenReviewOutcome {
    /// The token is valid.
    Authenticated,
    /// The token is invalid.
    Rejected,
    /// Upstream does not allow the caller to create a SelfSubjectReview.
    SelfReviewForbidden,
    /// Upstream did not answer, or its answer could not be used.
    Failed,
}

impl Label for TokenReviewOutcome {
    const ALL: &'static [Self] = &[
        Self::Authenticated,
        Self::Rejected,
        Self::SelfReviewForbidden,
        Self::Failed,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Authenticated => "authenticated",
            Self::Rejected => "rejected",
            Self::SelfReviewForbidden => "may_not_ask",
            Self::Failed => "failed",
        }
    }
}

/// The result of a lookup in the cache of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCacheLookup {
    /// The cache has the token's user.
    Hit,
    /// The token must be reviewed, or a review is in flight already.
    Miss,
}

impl Label for TokenCacheLookup {
    const ALL: &'static [Self] = &[Self::Hit, Self::Miss];

    fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
        }
    }
}

/// In seconds: from half a millisecond to the timeout of a review.
const BUCKETS: [f64; 11] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0,
];

impl AuthenticationMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let attempts = Register(registry).counters(
            "authentication_attempts_total",
            "Credentials of requests that memory may answer, by authenticator and outcome.",
            &["authenticator", "outcome"],
        )?;
        let of = |authenticator| ByLabel::resolve(&attempts, &[authenticator]);
        let review_duration = Histogram::with_opts(
            HistogramOpts::new(
                "authentication_review_duration_seconds",
                "Time until upstream has reviewed a token.",
            )
            .buckets(BUCKETS.to_vec()),
        )?;
        registry.register(Box::new(review_duration.clone()))?;
        Ok(Self {
            front_proxy: of("front_proxy"),
            certificate: of("certificate"),
            token: of("token"),
            anonymous: of("anonymous"),
            reviews: by_label(
                registry,
                "authentication_reviews_total",
                "Reviews of tokens by upstream, by outcome.",
            )?,
            review_duration,
            token_cache: by_label(
                registry,
                "authentication_token_cache_lookups_total",
                "Lookups of tokens in the cache of tokens, by outcome.",
            )?,
        })
    }
}

fn by_label<L: Label>(
    registry: &Registry,
    name: &str,
    help: &str,
) -> Result<ByLabel<L>, MetricsError> {
    let family = Register(registry).counters(name, help, &["outcome"])?;
    Ok(ByLabel::resolve(&family, &[]))
}
