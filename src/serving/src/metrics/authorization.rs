//! Metrics of authorization: access reviews, cached decisions, and permissions of open streams.

use prometheus::{Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, Registry};
use strum::{IntoStaticStr, VariantArray};

use super::families::{ByLabel, MetricsError, Register, StateGauges};

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
    /// Watches that resumed with the permission of the one before.
    pub resumed: IntCounter,
    /// Repeated checks of the permissions of open streams, by outcome.
    pub rechecks: ByLabel<Recheck>,
    /// Permissions that were revoked from open streams, by reason.
    pub revocations: ByLabel<Revocation>,
    /// Permissions that open streams hold now.
    pub leases: IntGauge,
    /// Reviews of tokens that upstream got, by cause.
    pub token_reviews: ByLabel<ReviewCause>,
    /// Access reviews that upstream got, by cause.
    pub access_reviews: ByLabel<ReviewCause>,
    /// Reviews a second that the checks at the interval may send.
    pub review_budget: Gauge,
    /// Age of the oldest confirmation on which an open stream stands, in seconds.
    pub oldest_confirmation: Gauge,
    /// Whether upstream's decisions follow from roles.
    pub upstream: StateGauges<AuthorizersLabel>,
    /// How often upstream answered two tokens of one user differently.
    pub contradictions: IntCounter,
}

/// In seconds: from half a millisecond to the timeout of one attempt of a review.
const BUCKETS: [f64; 11] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0,
];

impl AuthorizationMetrics {
    pub(super) fn register(
        registry: &Registry,
        by_cause: &IntCounterVec,
    ) -> Result<Self, MetricsError> {
        let add = Register(registry);
        Ok(Self {
            token_reviews: ByLabel::resolve(by_cause, &["token"]),
            access_reviews: ByLabel::resolve(by_cause, &["access"]),
            review_budget: add.real_gauge(
                "review_budget",
                "Reviews a second that checks of open streams at the interval may send; +Inf without a limit.",
            )?,
            oldest_confirmation: add.real_gauge(
                "authorization_oldest_confirmation_seconds",
                "Time since the confirmation of a permission of an open stream that is the oldest.",
            )?,
            upstream: StateGauges::resolve(
                &add.gauges(
                    "authorization_upstream",
                    "1 for what is known of the API server's authorizers, 0 for the other states.",
                    &["state"],
                )?,
                &[],
            ),
            contradictions: add.counter(
                "authorization_contradictions_total",
                "How often the API server answered two tokens of one user differently.",
            )?,
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
            resumed: add.counter(
                "authorization_resumed_total",
                "Watches that resumed with the permission of the one before, about which nothing was asked.",
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

impl AuthorizationMetrics {
    /// Reads that callers may have from memory.
    #[must_use]
    pub fn permitted_reads(&self) -> u64 {
        self.cache_hits.get() + self.cache_misses.get() + self.resumed.get()
    }

    /// Reviews that upstream got.
    #[must_use]
    pub fn reviews_sent(&self) -> u64 {
        let causes = ReviewCause::VARIANTS.iter();
        causes
            .map(|cause| self.token_reviews.count(*cause) + self.access_reviews.count(*cause))
            .sum()
    }
}

/// What is known of upstream's authorizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AuthorizersLabel {
    /// Roles and fixed rules for nodes explain all decisions.
    Transparent,
    /// Something else may decide, too.
    Opaque,
}

/// Why upstream got a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReviewCause {
    /// A request brought a token or a question that was not remembered.
    New,
    /// Something has happened that may have ended a permission.
    Event,
    /// A permission was confirmed about an hour ago.
    Expired,
    /// No event covers a permission, and the interval is over.
    Sweep,
    /// A check is repeated because the last one failed.
    Retry,
}

/// The family of reviews by kind and cause.
pub(super) fn reviews_by_cause(registry: &Registry) -> Result<IntCounterVec, MetricsError> {
    Register(registry).counters(
        "reviews_total",
        "Reviews that the API server got, by kind and cause.",
        &["kind", "cause"],
    )
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
