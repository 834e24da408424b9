//! Metrics of admission control: lists that run or wait, and requests that were refused.

use prometheus::{IntGauge, Opts, Registry};

use super::families::{ByLabel, MetricsError, Register};
use super::labels::{Label, LimitLabel, PermitKind};
use crate::fairness::Shortage;

/// Counts requests and connections that found no free permit, by kind of permit and by the bound that was reached.
#[derive(Clone, Debug)]
pub struct Shortages(Vec<(PermitKind, ByLabel<Shortage>)>);

impl Shortages {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let family = Register(registry).counters(
            "shortages_total",
            "Requests and connections that found no free permit, for lists also after waiting, by the bound that was reached.",
            &["place", "bound"],
        )?;
        let of_kind = |kind: &PermitKind| (*kind, ByLabel::resolve(&family, &[kind.as_str()]));
        Ok(Self(PermitKind::ALL.iter().map(of_kind).collect()))
    }

    /// Counts one request or connection.
    pub fn inc(&self, kind: PermitKind, shortage: Shortage) {
        let mut counters = self.0.iter().filter(|(known, _)| *known == kind);
        if let Some((_, counter)) = counters.next() {
            counter.inc(shortage);
        }
    }

    /// Number of requests and connections that were counted.
    #[must_use]
    pub fn count(&self, kind: PermitKind, shortage: Shortage) -> u64 {
        let mut counters = self.0.iter().filter(|(known, _)| *known == kind);
        counters
            .next()
            .map_or(0, |(_, counter)| counter.count(shortage))
    }
}

/// Handles of admission control.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    /// Requests and connections answered with 429, by reason.
    pub refusals: ByLabel<LimitLabel>,
    /// Requests and connections that found no free permit, by the bound that was reached.
    pub shortages: Shortages,
    /// Lists that hold a permit.
    pub lists_running: IntGauge,
    /// Lists that wait for a permit.
    pub lists_waiting: IntGauge,
    /// Lists that continue slowly without a permit.
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
            "Requests and connections refused with 429 because there were too many, by reason.",
            &["reason"],
        )?;
        Ok(Self {
            refusals: ByLabel::resolve(&refusals, &[]),
            shortages,
            lists_running: gauge(
                "admission_lists_running",
                "Lists being sent, and watches that send their initial events.",
            )?,
            lists_waiting: gauge("admission_lists_waiting", "Lists that wait for a permit.")?,
            lists_slow: gauge(
                "admission_lists_slow",
                "Lists that lost their permit to others because their clients read too slowly.",
            )?,
        })
    }
}
