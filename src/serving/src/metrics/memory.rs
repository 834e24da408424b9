//! Metrics of the process's memory: what each part holds, and what is done while it is short.

use prometheus::{IntGauge, IntGaugeVec, Registry};
use strum::VariantArray;

use super::families::{ByLabel, MetricsError, Register};
use super::labels::{Label, MemoryPart, PressureStep};

/// Handles of the memory of the process.
#[derive(Clone, Debug)]
pub struct MemoryMetrics {
    parts: IntGaugeVec,
    /// Resident bytes when the parts were last summed up.
    pub resident: IntGauge,
    /// The bound; 0 if there is none.
    pub limit: IntGauge,
    /// The pressure: 0 for none, otherwise the number of the last step that is taken.
    pub pressure: IntGauge,
    /// Times that a step was taken.
    pub steps: ByLabel<PressureStep>,
}

impl MemoryMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let metrics = Self {
            parts: add.gauges(
                "memory_bytes",
                "Memory that a part of the process holds, counted or estimated.",
                &["part"],
            )?,
            resident: add.gauge(
                "memory_resident_bytes",
                "Resident memory of the process when its parts were last summed up.",
            )?,
            limit: add.gauge(
                "memory_limit_bytes",
                "The bound of resident memory; 0 for none.",
            )?,
            pressure: add.gauge(
                "memory_pressure",
                "How short memory is: 0 is not at all, 1 to 4 are the steps that give memory back.",
            )?,
            steps: add.by_label(
                "memory_pressure_steps_total",
                "Times that memory was given back because it was short, by what was given up.",
                "step",
            )?,
        };
        for part in MemoryPart::VARIANTS {
            metrics.set(*part, 0);
        }
        Ok(metrics)
    }

    /// Sets what a part holds, in bytes.
    pub fn set(&self, part: MemoryPart, len: usize) {
        let gauge = self.parts.with_label_values(&[part.as_str()]);
        gauge.set(i64::try_from(len).unwrap_or(i64::MAX));
    }

    /// What a part held when it was last set, in bytes.
    #[must_use]
    pub fn part(&self, part: MemoryPart) -> usize {
        let gauge = self.parts.with_label_values(&[part.as_str()]);
        usize::try_from(gauge.get()).unwrap_or_default()
    }
}
