//! Metrics of spans that are sent to a collector.

use prometheus::Registry;

use super::families::{ByLabel, MetricsError, Register};
use super::labels::Label;

/// What happened to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanOutcome {
    /// The collector has it.
    Exported,
    /// The collector refused it, or could not be reached.
    Failed,
    /// The queue was full.
    Dropped,
}

impl Label for SpanOutcome {
    const ALL: &'static [Self] = &[Self::Exported, Self::Failed, Self::Dropped];

    fn as_str(self) -> &'static str {
        match self {
            Self::Exported => "exported",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// Handles of the metrics of spans.
#[derive(Clone, Debug)]
pub struct TraceMetrics(ByLabel<SpanOutcome>);

impl TraceMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let family = Register(registry).counters(
            "trace_spans_total",
            "Spans of sampled traces, by what became of them; 0 without a collector.",
            &["outcome"],
        )?;
        Ok(Self(ByLabel::resolve(&family, &[])))
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
