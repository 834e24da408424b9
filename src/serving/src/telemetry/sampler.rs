//! Which spans are recorded.
//!
//! Callers of whom nothing is known yet send `traceparent`, too. So only some of those who have sampled their trace are followed; for the
//! others the ratio decides, as for requests without a trace.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{Link, SpanKind, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{Sampler, SamplingResult, ShouldSample};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Requests in a second whose callers decide. A request has up to three spans, and the queue holds a few thousand.
pub(super) const FOLLOWED_MAX: u32 = 200;
const PERIOD: Duration = Duration::from_secs(1);

/// Samples `ratio` of the requests without a trace, and those that belong to a sampled trace.
pub(super) fn sampler(ratio: f64) -> impl ShouldSample + 'static {
    let ratio = Sampler::TraceIdRatioBased(ratio);
    let callers = CallerSampler {
        ratio: ratio.clone(),
        budget: Arc::default(),
    };
    Sampler::parent_based(ratio).with_remote_parent_sampled(callers)
}

/// Decides about requests whose callers have sampled their trace.
#[derive(Clone, Debug)]
struct CallerSampler {
    ratio: Sampler,
    budget: Arc<Mutex<CallerBudget>>,
}

impl ShouldSample for CallerSampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let decides = match self.budget.lock().take(Instant::now()) {
            true => &Sampler::AlwaysOn,
            false => &self.ratio,
        };
        decides.should_sample(parent, trace, name, kind, attributes, links)
    }
}

/// How many more callers are followed in this period.
#[derive(Debug, Default)]
struct CallerBudget {
    began: Option<Instant>,
    taken: u32,
}

impl CallerBudget {
    fn take(&mut self, now: Instant) -> bool {
        if self.began.is_none_or(|began| now >= began + PERIOD) {
            (self.began, self.taken) = (Some(now), 0);
        }
        let is_left = self.taken < FOLLOWED_MAX;
        self.taken += u32::from(is_left);
        is_left
    }
}
