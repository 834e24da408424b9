//! Metrics of the canary: writes of the gateway's own, and their way back.

use prometheus::{Gauge, Histogram, Opts, Registry};

use super::families::{ByLabel, MetricsError, Register};
use super::labels::Label;

/// In seconds: from a healthy API server to one that hardly answers.
const CANARY_BOUNDS: [f64; 12] = [
    0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Why a round of the canary failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanaryFailure {
    /// 401 or 403: the gateway may not write the Lease.
    Forbidden,
    /// 404: the namespace does not exist.
    Namespace,
    /// Somebody else wrote or deleted the Lease.
    Conflict,
    /// Another error of upstream, or an answer that is none.
    Refused,
    /// Upstream could not be reached.
    Unreachable,
    /// Upstream did not answer in time.
    TimedOut,
    /// Leases are not served from memory.
    NotCached,
    /// The write was answered, and its event did not come in time.
    NotDelivered,
}

impl Label for CanaryFailure {
    const ALL: &'static [Self] = &[
        Self::Forbidden,
        Self::Namespace,
        Self::Conflict,
        Self::Refused,
        Self::Unreachable,
        Self::TimedOut,
        Self::NotCached,
        Self::NotDelivered,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Namespace => "namespace",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::NotCached => "not_cached",
            Self::NotDelivered => "not_delivered",
        }
    }
}

/// Handles of the canary.
#[derive(Clone, Debug)]
pub struct CanaryMetrics {
    /// Seconds from a write's request to its response.
    pub write: Histogram,
    /// Seconds from a write's request to the arrival of its event.
    pub arrival: Histogram,
    /// Seconds from a write's request to its event in a watch of the gateway.
    pub delivery: Histogram,
    /// Rounds that failed, by reason.
    pub failures: ByLabel<CanaryFailure>,
    /// When a round last succeeded, in seconds since 1970; 0 before that.
    pub last_success: Gauge,
}

impl CanaryMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let durations = Register(registry).histograms(
            "canary_duration_seconds",
            "Time from a write of the gateway's own to a stage of its way back.",
            &["stage"],
            &CANARY_BOUNDS,
        )?;
        let failures = Register(registry).counters(
            "canary_failures_total",
            "Writes of the gateway's own that failed or did not come back, by reason.",
            &["reason"],
        )?;
        let last_success = Gauge::with_opts(Opts::new(
            "canary_last_success_timestamp_seconds",
            "When a write of the gateway's own last came back, in seconds since 1970.",
        ))?;
        registry.register(Box::new(last_success.clone()))?;
        let stage = |stage: &str| durations.with_label_values(&[stage]);
        Ok(Self {
            write: stage("write"),
            arrival: stage("arrival"),
            delivery: stage("delivery"),
            failures: ByLabel::resolve(&failures, &[]),
            last_success,
        })
    }
}
