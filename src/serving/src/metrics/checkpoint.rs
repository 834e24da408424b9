//! Metrics of a resource's checkpoint.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::families::{ByLabel, Register, resource_and};
use super::labels::RestoreOutcome;
use super::{MetricsError, ResourceLabels};

/// Handles of one resource's checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointMetrics {
    /// Length of the file.
    pub bytes: IntGauge,
    /// Times that the checkpoint was written anew.
    pub writes: IntCounter,
    /// Times that it could not be written or appended to.
    pub errors: IntCounter,
    /// Attempts to fill the cache from a checkpoint.
    pub restores: ByLabel<RestoreOutcome>,
}

#[derive(Debug)]
pub(super) struct CheckpointFamilies {
    bytes: IntGaugeVec,
    writes: IntCounterVec,
    errors: IntCounterVec,
    restores: IntCounterVec,
}

impl CheckpointFamilies {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let labels = &ResourceLabels::NAMES;
        Ok(Self {
            bytes: add.gauges("checkpoint_bytes", "Length of the checkpoint.", labels)?,
            writes: add.counters(
                "checkpoint_writes_total",
                "Times the checkpoint was written anew.",
                labels,
            )?,
            errors: add.counters(
                "checkpoint_errors_total",
                "Times the checkpoint could not be written.",
                labels,
            )?,
            restores: add.counters(
                "checkpoint_restores_total",
                "Caches that were to be filled from a checkpoint, by outcome.",
                &resource_and("outcome"),
            )?,
        })
    }

    pub(super) fn forget(&self, labels: ResourceLabels<'_>) {
        // An error means that the series does not exist.
        let _ = self.bytes.remove_label_values(&labels.values());
    }

    /// Removes every series of a resource.
    pub(super) fn remove(&self, labels: ResourceLabels<'_>) {
        self.forget(labels);
        let values = &labels.values();
        for counters in [&self.writes, &self.errors] {
            // An error means that the series does not exist.
            let _ = counters.remove_label_values(values);
        }
        ByLabel::<RestoreOutcome>::forget(&self.restores, values);
    }

    pub(super) fn of(&self, labels: ResourceLabels<'_>) -> CheckpointMetrics {
        let values = &labels.values();
        CheckpointMetrics {
            bytes: self.bytes.with_label_values(values),
            writes: self.writes.with_label_values(values),
            errors: self.errors.with_label_values(values),
            restores: ByLabel::resolve(&self.restores, values),
        }
    }
}
