//! Metrics of the comparison of this gateway's watches with those of other gateways.

use prometheus::{IntCounter, IntGauge, Registry};
use strum::{IntoStaticStr, VariantArray};

use super::families::{ByLabel, MetricsError, Register};

/// What followed from a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RebalanceOutcome {
    /// There was no other gateway to compare with.
    Alone,
    /// There are not many more watches here.
    Balanced,
    /// There are many more watches here. But clients that were sent away before have not arrived at other gateways, or as many as are
    /// allowed in an hour were sent away.
    Paused,
    /// There are many more watches here. But no connection can be sent away: each has too many watches, or none with bookmarks.
    Immovable,
    /// Clients are sent away.
    Round,
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
        let add = Register(registry);
        Ok(Self {
            comparisons: add.by_label(
                "rebalance_comparisons_total",
                "Comparisons of the number of watches with other gateways, by outcome.",
                "outcome",
            )?,
            connections: add.counter(
                "rebalance_connections_total",
                "Connections whose clients were sent away because there were fewer watches elsewhere.",
            )?,
            watches: add.gauge(
                "rebalance_watches",
                "Watches from memory at the last comparison.",
            )?,
            mean: add.gauge(
                "rebalance_watches_mean",
                "Their mean number at all gateways that were compared.",
            )?,
            gateways: add.gauge(
                "rebalance_gateways",
                "Other gateways at the last comparison.",
            )?,
        })
    }
}
