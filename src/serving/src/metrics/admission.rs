//! Metrics of admission control: lists that run or wait, and requests that were refused.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{IntGauge, Registry};
use strum::VariantArray;
use tracing::warn;

use super::families::{ByLabel, MetricsError, Register};
use super::labels::{Label, LimitLabel, PermitKind};
use crate::fairness::Shortage;
use crate::log_limit::FaultLog;

/// Counts requests and connections that found no free permit, by kind of permit and by the bound that was reached, and logs that rarely.
#[derive(Clone, Debug)]
pub struct Shortages(Vec<KindShortages>);

#[derive(Clone, Debug)]
struct KindShortages {
    kind: PermitKind,
    counter: ByLabel<Shortage>,
    log: Arc<Mutex<FaultLog<()>>>,
}

impl Shortages {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let family = Register(registry).counters(
            "shortages_total",
            "Requests and connections that found no free permit, for lists also after waiting, by the bound that was reached.",
            &["place", "bound"],
        )?;
        let of_kind = |kind: &PermitKind| KindShortages {
            kind: *kind,
            counter: ByLabel::resolve(&family, &[kind.as_str()]),
            log: Arc::default(),
        };
        Ok(Self(PermitKind::VARIANTS.iter().map(of_kind).collect()))
    }

    /// Counts one request or connection.
    pub fn inc(&self, kind: PermitKind, shortage: Shortage) {
        let Some(found) = self.of(kind) else {
            return;
        };
        found.counter.inc(shortage);
        // The end of a shortage is not logged: a limit can be reached and left many times a second.
        if found.log.lock().is_due(()) {
            let (place, bound) = (kind.as_str(), shortage.as_str());
            warn!(
                place,
                bound, "a limit is reached: clients get 429; this is counted, and logged rarely"
            );
        }
    }

    /// Number of requests and connections that were counted.
    #[must_use]
    pub fn count(&self, kind: PermitKind, shortage: Shortage) -> u64 {
        self.of(kind)
            .map_or(0, |found| found.counter.count(shortage))
    }

    fn of(&self, kind: PermitKind) -> Option<&KindShortages> {
        self.0.iter().find(|found| found.kind == kind)
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
        let add = Register(registry);
        Ok(Self {
            refusals: add.by_label(
                "admission_refusals_total",
                "Requests and connections refused with 429 because there were too many, by reason.",
                "reason",
            )?,
            shortages,
            lists_running: add.gauge(
                "admission_lists_running",
                "Lists being sent, and watches that send their initial events.",
            )?,
            lists_waiting: add.gauge("admission_lists_waiting", "Lists that wait for a permit.")?,
            lists_slow: add.gauge(
                "admission_lists_slow",
                "Lists that lost their permit to others because their clients read too slowly.",
            )?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::samples::captured_log::CapturedLog;

    #[test]
    fn a_limit_that_is_reached_often_is_logged_rarely() {
        let (log, _guard) = CapturedLog::start();
        let shortages = Shortages::register(&Registry::new()).unwrap();
        for bound in Shortage::VARIANTS.iter().cycle().take(30) {
            shortages.inc(PermitKind::Lists, *bound);
        }
        assert_eq!(shortages.count(PermitKind::Lists, Shortage::Total), 10);
        assert_eq!(log.lines_with("a limit is reached").len(), 1);
    }
}
