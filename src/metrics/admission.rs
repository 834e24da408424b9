//! Who was let in, who waits, and who was sent away.

use prometheus::{IntGauge, Opts, Registry};

use super::MetricsError;
use super::families::{ByLabel, Register};
use super::labels::{Label, LimitLabel, PermitKind};
use crate::fairness::Shortage;

/// Counts who found no place, by place and by the bound that left none.
#[derive(Clone, Debug)]
pub struct Shortages(Vec<(PermitKind, ByLabel<Shortage>)>);

impl Shortages {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let family = Register(registry).counters(
            "shortages_total",
            "Requests and connections that found no place, by the bound that left none.",
            &["place", "bound"],
        )?;
        let of_place = |place: &PermitKind| (*place, ByLabel::resolve(&family, &[place.as_str()]));
        Ok(Self(PermitKind::ALL.iter().map(of_place).collect()))
    }

    /// Counts one.
    pub fn inc(&self, place: PermitKind, shortage: Shortage) {
        let mut counters = self.0.iter().filter(|(known, _)| *known == place);
        if let Some((_, counter)) = counters.next() {
            counter.inc(shortage);
        }
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self, place: PermitKind, shortage: Shortage) -> u64 {
        let mut counters = self.0.iter().filter(|(known, _)| *known == place);
        counters
            .next()
            .map_or(0, |(_, counter)| counter.count(shortage))
    }
}

/// Handles of what is bounded for all clients together.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    /// Requests and connections answered with 429, by reason.
    pub refusals: ByLabel<LimitLabel>,
    /// Who found no place, and why.
    pub shortages: Shortages,
    /// Lists that have a place.
    pub lists_running: IntGauge,
    /// Lists that wait for one.
    pub lists_waiting: IntGauge,
    /// Lists that go on without a place.
    pub lists_slow: IntGauge,
}

impl AdmissionMetrics {
    pub(super) fn register(
        registry: &Registry,
        shortages: Shortages,
    ) -> Result<Self, MetricsError> {
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
            shortages,
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
