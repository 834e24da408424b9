//! Metrics of shadow comparisons: upstream's answers against those that memory would have given.

use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGauge, Registry};
use strum::{IntoStaticStr, VariantArray};

use super::families::{ByLabel, MetricsError, Register};
use super::labels::{Label as _, VerbLabel};
use crate::resource::Gvr;

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ShadowOutcome {
    /// Both sides are the same.
    Equal,
    /// Upstream has an object or an event that memory lacks.
    Missing,
    /// Memory has an object or an event that upstream lacks.
    Extra,
    /// Both have the object or the event, but not the same one: other bytes, another version, another type, another order.
    Content,
    /// Memory would have answered with another status.
    Status,
    /// There was nothing to compare with, or the comparison would have cost too much.
    NotComparable,
}

/// Handles of shadow comparisons.
#[derive(Clone, Debug)]
pub struct ShadowMetrics {
    comparisons: IntCounterVec,
    /// Watches that are being compared.
    pub watches: IntGauge,
}

impl ShadowMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        Ok(Self {
            comparisons: add.counters(
                "shadow_comparisons_total",
                "Lists, and events of watches, that were forwarded and compared with what memory would have answered.",
                &["group", "resource", "verb", "outcome"],
            )?,
            watches: add.gauge(
                "shadow_watches",
                "Forwarded watches that are being compared with what memory would have answered.",
            )?,
        })
    }

    /// How often this was found, of all resources.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count"
    )]
    pub fn total(&self, outcome: ShadowOutcome) -> u64 {
        let families = self.comparisons.collect();
        let series = families.iter().flat_map(MetricFamily::get_metric);
        let found = series.filter(|series| {
            let mut labels = series.get_label().iter();
            labels.any(|label| label.name() == "outcome" && label.value() == outcome.as_str())
        });
        found
            .map(|series| series.get_counter().get_value())
            .sum::<f64>() as u64
    }

    /// The counters of a resource that upstream has.
    #[must_use]
    pub fn of(&self, resource: &Gvr, verb: VerbLabel) -> ByLabel<ShadowOutcome> {
        let labels = [&*resource.group, &*resource.resource, verb.as_str()];
        ByLabel::resolve(&self.comparisons, &labels)
    }
}
