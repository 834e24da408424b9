//! Metrics of authorization: access reviews, cached decisions, and permissions of open streams.

use prometheus::{Histogram, IntCounter, IntGauge, Registry};
use strum::{IntoStaticStr, VariantArray};

use super::families::{ByLabel, MetricsError, Register};

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
        let add = Register(registry);
        Ok(Self {
            reviews: add.by_label(
                "authorization_reviews_total",
                "Access reviews, by outcome.",
                "outcome",
            )?,
            review_duration: add.histogram(
                "authorization_review_duration_seconds",
                "Time until an access review was answered.",
                &BUCKETS,
            )?,
            cache_hits: add.counter(
                "authorization_cache_hits_total",
                "Decisions about lists and watches that were remembered.",
            )?,
            cache_misses: add.counter(
                "authorization_cache_misses_total",
                "Decisions about lists and watches that were not remembered, or too old.",
            )?,
            rechecks: add.by_label(
                "authorization_rechecks_total",
                "Repeated checks of the permissions of open streams, by outcome.",
                "outcome",
            )?,
            revocations: add.by_label(
                "authorization_revocations_total",
                "Permissions revoked from open streams, by reason.",
                "reason",
            )?,
            leases: add.gauge(
                "authorization_leases",
                "Permissions that open streams hold.",
            )?,
        })
    }
}

/// The outcome of an access review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReviewOutcome {
    /// The access is allowed.
    Allowed,
    /// The access is denied.
    Denied,
    /// The caller is not allowed to create the review.
    #[strum(serialize = "may_not_ask")]
    Unasked,
    /// Upstream did not answer, or its answer could not be used.
    Failed,
    /// The review was not sent, because too many reviews wait already.
    QueueFull,
}

/// The outcome of checking the permission of open streams again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Recheck {
    /// The streams may continue.
    Confirmed,
    /// The streams must end.
    Refused,
    /// The check failed.
    Failed,
}

/// Why a permission was revoked from open streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Revocation {
    /// The access is now denied.
    Denied,
    /// The credentials are no longer valid, or identify another user.
    Unauthenticated,
    /// Checks of the permission have failed for `--reauthorize-grace`, or none was made for an hour longer.
    GraceOver,
}
