//! Metrics of the readiness of the gateway.

use super::families::{MetricsError, Register};
use super::labels::Label;
use prometheus::{IntGauge, Registry};
use strum::{IntoStaticStr, VariantArray};

/// What the gateway must have to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReadinessLabel {
    /// Upstream's discovery.
    Upstream,
    /// The pinned resources, each filled once.
    Pinned,
    /// The caches of another gateway, unless it has none.
    Handover,
    /// Clients: no drain has begun.
    Drain,
}

/// Handles of the readiness of the gateway.
#[derive(Clone, Debug)]
pub struct ReadinessMetrics {
    gauges: Vec<(ReadinessLabel, IntGauge)>,
}

impl ReadinessMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let family = Register(registry).gauges(
            "ready",
            "Whether the checks of this kind pass; a scrape reads them.",
            &["check"],
        )?;
        let gauge = |label: &ReadinessLabel| (*label, family.with_label_values(&[label.as_str()]));
        Ok(Self {
            gauges: ReadinessLabel::VARIANTS.iter().map(gauge).collect(),
        })
    }

    /// Sets the gauge of each kind: 1 if none of the `failed` checks is of this kind.
    pub fn set(&self, failed: &[ReadinessLabel]) {
        for (label, gauge) in &self.gauges {
            gauge.set(i64::from(!failed.contains(label)));
        }
    }
}
