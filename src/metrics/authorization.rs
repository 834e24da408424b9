//! Metrics of authorization: access reviews, cached decisions, and permissions of open streams.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry};

use super::families::{ByLabel, MetricsError, Register};
use super::labels::Label;

/// Handles of authorization.
#[derive(Clone, Debug)]
pub struct AuthorizationMetrics {
    /// Access reviews by outcome.
    pub reviews: ByLabel<ReviewOutcome>,
    /// Duration of reviews, in seconds.
    pub review_duration: Histogram,
    /// Decisions that were taken from the cache.
    pub cache_hits: IntCounter,
    /// Decisions that were not in the cache.
    pub cache_misses: IntCounter,
    /// Repeated checks of the permissions of open streams, by outcome.
    pub rechecks: ByLabel<Recheck>,
    /// Permissions that were revoked from open streams, by reason.
    pub revocations: ByLabel<Revocation>,
    /// Permissions that open streams hold now.
    pub leases: IntGauge,
}

/// In seconds: from half a millisecond to the timeout of one attempt of a review.
const BUCKETS: [f64; 11] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0,
];

impl AuthorizationMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let counter = |name, help| -> Result<IntCounter, MetricsError> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let review_duration = Histogram::with_opts(
            HistogramOpts::new(
                "authorization_review_duration_seconds",
                "Time until an access review was answered.",
            )
            .buckets(BUCKETS.to_vec()),
        )?;
        registry.register(Box::new(review_duration.clone()))?;
        let leases = IntGauge::with_opts(Opts::new(
            "authorization_leases",
            "Permissions that open streams hold.",
        ))?;
        registry.register(Box::new(leases.clone()))?;
        Ok(Self {
            reviews: by_label(
                registry,
                "authorization_reviews_total",
                "Access reviews, by outcome.",
                "outcome",
            )?,
            review_duration,
            cache_hits: counter(
                "authorization_cache_hits_total",
                "Decisions about lists and watches that were remembered.",
            )?,
            cache_misses: counter(
                "authorization_cache_misses_total",
                "Decisions about lists and watches that were not remembered, or too old.",
            )?,
            rechecks: by_label(
                registry,
                "authorization_rechecks_total",
                "Repeated checks of the permissions of open streams, by outcome.",
                "outcome",
            )?,
            revocations: by_label(
                registry,
                "authorization_revocations_total",
                "Permissions revoked from open streams, by reason.",
                "reason",
            )?,
            leases,
        })
    }
}

fn by_label<L: Label>(
    registry: &Registry,
    name: &str,
    help: &str,
    label: &str,
) -> Result<ByLabel<L>, MetricsError> {
    let family = Register(registry).counters(name, help, &[label])?;
    Ok(ByLabel::resolve(&family, &[]))
}

/// The outcome of an access review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewOutcome {
    /// The access is allowed.
    Allowed,
    /// The access is denied.
    Denied,
    /// The caller is not allowed to create the review.
    Unasked,
    /// Upstream did not answer, or its answer could not be used.
    Failed,
    /// The review was not sent, because too many reviews wait already.
    QueueFull,
}

impl Label for ReviewOutcome {
    const ALL: &'static [Self] = &[
        Self::Allowed,
        Self::Denied,
        Self::Unasked,
        Self::Failed,
        Self::QueueFull,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Unasked => "may_not_ask",
            Self::Failed => "failed",
            Self::QueueFull => "queue_full",
        }
    }
}

/// The outcome of checking the permission of open streams again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// The streams may continue.
    Confirmed,
    /// The streams must end.
    Refused,
    /// The check failed.
    Failed,
}

impl Label for Recheck {
    const ALL: &'static [Self] = &[Self::Confirmed, Self::Refused, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Why a permission was revoked from open streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The access is now denied.
    Denied,
    /// The credentials are no longer valid, or identify another user.
    Unauthenticated,
    /// The permission was not confirmed for longer than `--reauthorize-grace`.
    GraceOver,
}

impl Label for Revocation {
    const ALL: &'static [Self] = &[Self::Denied, Self::Unauthenticated, Self::GraceOver];

    fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Unauthenticated => "unauthenticated",
            Self::GraceOver => "grace_over",
        }
    }
}
