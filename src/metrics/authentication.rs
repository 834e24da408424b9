//! Who is calling: how callers were authenticated, and what upstream was asked for that.

use prometheus::{Histogram, HistogramOpts, Registry};

use super::MetricsError;
use super::families::{ByLabel, Register};
use super::labels::Label;

/// Handles of authentication.
#[derive(Clone, Debug)]
pub struct AuthenticationMetrics {
    /// Headers of front proxies.
    pub front_proxy: ByLabel<AuthenticationOutcome>,
    /// Client certificates.
    pub certificate: ByLabel<AuthenticationOutcome>,
    /// Bearer tokens.
    pub token: ByLabel<AuthenticationOutcome>,
    /// Requests without credentials.
    pub anonymous: ByLabel<AuthenticationOutcome>,
    /// Reviews of tokens by outcome.
    pub reviews: ByLabel<TokenReviewOutcome>,
    /// How long they took.
    pub review_duration: Histogram,
    /// Whether a token was remembered.
    pub token_cache: ByLabel<TokenCacheLookup>,
}

/// What came of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationOutcome {
    /// It says who is calling.
    Success,
    /// It does not count.
    Failure,
    /// Whether it counts could not be found out.
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

/// What came of a review of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenReviewOutcome {
    /// It is somebody's.
    Authenticated,
    /// It does not count.
    Rejected,
    /// Upstream does not let the caller ask about itself.
    SelfReviewForbidden,
    /// No answer that makes sense.
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

/// Whether a token was remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCacheLookup {
    /// It was.
    Hit,
    /// Upstream was asked, or is being asked.
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

/// Half a millisecond to the longest time that a review may take.
const BUCKETS: [f64; 11] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0,
];

impl AuthenticationMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let attempts = Register(registry).counters(
            "authentication_attempts_total",
            "Credentials of requests that were looked at, by authenticator and outcome.",
            &["authenticator", "outcome"],
        )?;
        let of = |authenticator| ByLabel::resolve(&attempts, &[authenticator]);
        let review_duration = Histogram::with_opts(
            HistogramOpts::new(
                "authentication_review_duration_seconds",
                "Time until upstream has said whose a token is.",
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
                "Questions to upstream whose a token is, by outcome.",
            )?,
            review_duration,
            token_cache: by_label(
                registry,
                "authentication_token_cache_lookups_total",
                "Tokens looked up among those that are remembered, by outcome.",
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
