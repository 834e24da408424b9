//! What callers may do: decisions, where they came from, and permission that was taken back.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry};

use super::MetricsError;
use super::families::{ByLabel, Register};
use super::labels::Label;

/// Handles of authorization.
#[derive(Clone, Debug)]
pub struct AuthorizationMetrics {
    /// Access reviews by outcome.
    pub reviews: ByLabel<ReviewOutcome>,
    /// How long they took.
    pub review_duration: Histogram,
    /// Decisions that were remembered.
    pub cache_hits: IntCounter,
    /// Decisions that were not.
    pub cache_misses: IntCounter,
    /// Permission of open streams that was asked about again, by what came of it.
    pub rechecks: ByLabel<Recheck>,
    /// Permission that was taken back from open streams, by reason.
    pub revocations: ByLabel<Revocation>,
    /// Permissions that open streams have now.
    pub leases: IntGauge,
}

/// Half a millisecond to the longest time that a review may take.
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
                "Time until an authorizer has decided.",
            )
            .buckets(BUCKETS.to_vec()),
        )?;
        registry.register(Box::new(review_duration.clone()))?;
        let leases = IntGauge::with_opts(Opts::new(
            "authorization_leases",
            "Permissions that open streams have.",
        ))?;
        registry.register(Box::new(leases.clone()))?;
        Ok(Self {
            reviews: by_label(
                registry,
                "authorization_reviews_total",
                "Questions put to authorizers, by outcome.",
                "outcome",
            )?,
            review_duration,
            cache_hits: counter(
                "authorization_cache_hits_total",
                "Decisions that were remembered.",
            )?,
            cache_misses: counter(
                "authorization_cache_misses_total",
                "Decisions that were not remembered.",
            )?,
            rechecks: by_label(
                registry,
                "authorization_rechecks_total",
                "Times that the permission of open streams was checked again, by outcome.",
                "outcome",
            )?,
            revocations: by_label(
                registry,
                "authorization_revocations_total",
                "Permissions taken back from open streams, by reason.",
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

/// What came of a question to an authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewOutcome {
    /// Yes.
    Allowed,
    /// No.
    Denied,
    /// The caller may not ask.
    Unasked,
    /// No answer that makes sense.
    Failed,
    /// Not put: too many wait for their turn.
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

/// What came of checking again whether open streams may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// They may.
    Confirmed,
    /// They may not.
    Refused,
    /// It could not be found out.
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

/// Why permission was taken back from open streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The access is denied now.
    Denied,
    /// The credentials no longer count, or are somebody else's.
    Unauthenticated,
    /// It could not be confirmed for longer than the grace.
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
