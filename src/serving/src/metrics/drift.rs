//! Metrics of the comparison of a resource's cache with upstream.

use prometheus::{IntCounter, IntCounterVec, Registry};

use super::families::Register;
use super::{MetricsError, ResourceLabels};

/// Handles of one resource's comparison.
#[derive(Clone, Debug)]
pub struct DriftMetrics {
    /// Objects compared with upstream's at the same version.
    pub objects_compared: IntCounter,
    /// Pages that could not be compared.
    pub pages_skipped: IntCounter,
    /// Times that all objects were compared.
    pub comparisons: IntCounter,
}

#[derive(Debug)]
pub(super) struct DriftFamilies {
    objects_compared: IntCounterVec,
    pages_skipped: IntCounterVec,
    comparisons: IntCounterVec,
}

impl DriftFamilies {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let labels = &ResourceLabels::NAMES;
        Ok(Self {
            objects_compared: add.counters(
                "drift_objects_compared_total",
                "Objects compared with upstream's at the same version.",
                labels,
            )?,
            pages_skipped: add.counters(
                "drift_pages_skipped_total",
                "Pages that could not be compared with upstream's.",
                labels,
            )?,
            comparisons: add.counters(
                "drift_comparisons_total",
                "Times that all objects of a cache were compared with upstream's.",
                labels,
            )?,
        })
    }

    /// Removes every series of a resource.
    pub(super) fn remove(&self, labels: ResourceLabels<'_>) {
        for counters in [
            &self.objects_compared,
            &self.pages_skipped,
            &self.comparisons,
        ] {
            // An error means that the series does not exist.
            let _ = counters.remove_label_values(&labels.values());
        }
    }

    pub(super) fn of(&self, labels: ResourceLabels<'_>) -> DriftMetrics {
        let values = &labels.values();
        DriftMetrics {
            objects_compared: self.objects_compared.with_label_values(values),
            pages_skipped: self.pages_skipped.with_label_values(values),
            comparisons: self.comparisons.with_label_values(values),
        }
    }
}
