//! Who was let in, who waits, and who was sent away.

use prometheus::{IntGauge, Opts, Registry};

use super::MetricsError;
use super::families::{ByLabel, Register};
use super::labels::Refused;

/// Handles of what is bounded for all clients together.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    /// Requests and connections answered with 429, by reason.
    pub refusals: ByLabel<Refused>,
    /// Lists that have a place.
    pub lists_running: IntGauge,
    /// Lists that wait for one.
    pub lists_waiting: IntGauge,
    /// Lists that go on without a place.
    pub lists_slow: IntGauge,
}

impl AdmissionMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let gauge = |name, help| -> Result<IntGauge, MetricsError> {
            let gauge = IntGauge::with_opts(Opts::new(name, help))?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let refusals = Register(registry).counters(
            "admission_refusals_total",
            "Requests and connections sent away with 429 because there were too many, by reason.",
            &["reason"],
        )?;
        Ok(Self {
            refusals: ByLabel::resolve(&refusals, &[]),
            lists_running: gauge(
                "admission_lists_running",
                "Lists being sent, and watches that send their initial events.",
            )?,
            lists_waiting: gauge("admission_lists_waiting", "Lists that wait for their turn.")?,
            lists_slow: gauge(
                "admission_lists_slow",
                "Lists that gave their place to others because their clients read too slowly.",
            )?,
        })
    }
}
