//! Metrics of the comparison of this gateway's watches with those of other gateways.

use prometheus::{IntCounter, IntGauge, Opts, Registry};

use super::families::{ByLabel, MetricsError, Register};
use super::labels::Label;

/// What followed from a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebalanceOutcome {
    /// No other gateway could be compared with.
    Alone,
    /// There are not many more watches here.
    Balanced,
    /// There are, but clients that were sent away before have not arrived at other gateways, or were as many as an hour allows.
    Paused,
    /// There are, but no connection can be sent away: each has too many watches, or none with bookmarks.
    Immovable,
    /// Clients are sent away.
    Round,
}

impl Label for RebalanceOutcome {
    const ALL: &'static [Self] = &[
        Self::Alone,
        Self::Balanced,
        Self::Paused,
        Self::Immovable,
        Self::Round,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Balanced => "balanced",
            Self::Paused => "paused",
            Self::Immovable => "immovable",
            Self::Round => "round",
        }
    }
}

/// Handles of the comparison.
#[derive(Clone, Debug)]
pub struct RebalanceMetrics {
    /// Comparisons, by what followed.
    pub comparisons: ByLabel<RebalanceOutcome>,
    /// Connections whose clients were sent away.
    pub connections: IntCounter,
    /// Watches here, at the last comparison.
    pub watches: IntGauge,
    /// Their mean number at all gateways.
    pub mean: IntGauge,
    /// Other gateways that were compared with.
    pub gateways: IntGauge,
}

impl RebalanceMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let comparisons = Register(registry).counters(
            "rebalance_comparisons_total",
            "Comparisons of the number of watches with other gateways, by outcome.",
            &["outcome"],
        )?;
        let connections = IntCounter::with_opts(Opts::new(
            "rebalance_connections_total",
            "Connections whose clients were sent away because there were fewer watches elsewhere.",
        ))?;
        registry.register(Box::new(connections.clone()))?;
        let gauge = |name: &str, help: &str| -> Result<IntGauge, MetricsError> {
            let gauge = IntGauge::with_opts(Opts::new(name, help))?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        Ok(Self {
            comparisons: ByLabel::resolve(&comparisons, &[]),
            connections,
            watches: gauge(
                "rebalance_watches",
                "Watches from memory at the last comparison.",
            )?,
            mean: gauge(
                "rebalance_watches_mean",
                "Their mean number at all gateways that were compared.",
            )?,
            gateways: gauge(
                "rebalance_gateways",
                "Other gateways at the last comparison.",
            )?,
        })
    }
}
