//! Metrics of spans that are sent to a collector.

use prometheus::Registry;
use strum::{IntoStaticStr, VariantArray};

use super::families::{ByLabel, MetricsError, Register};

/// What happened to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SpanOutcome {
    /// The collector has it.
    Exported,
    /// The collector refused it, or could not be reached.
    Failed,
    /// The queue was full.
    Dropped,
}

/// Handles of the metrics of spans.
#[derive(Clone, Debug)]
pub struct TraceMetrics(ByLabel<SpanOutcome>);

impl TraceMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let spans = Register(registry).by_label(
            "trace_spans_total",
            "Spans of sampled traces, by what became of them; 0 without a collector.",
            "outcome",
        )?;
        Ok(Self(spans))
    }

    /// Counts spans.
    pub fn add(&self, outcome: SpanOutcome, count: u64) {
        self.0.add(outcome, count);
    }

    /// The number of spans with this outcome.
    #[must_use]
    pub fn count(&self, outcome: SpanOutcome) -> u64 {
        self.0.count(outcome)
    }
}
