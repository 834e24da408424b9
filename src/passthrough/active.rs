//! One forwarded request, counted as active from its arrival until nothing of its answer is left to send.

use std::sync::Arc;

use crate::fairness::Permit;
use crate::metrics::PassthroughMetrics;

/// Held by whatever the request waits for: the exchange, then the body or the tunnel.
#[derive(Debug)]
pub(super) struct Active {
    metrics: Arc<PassthroughMetrics>,
    /// Its client's place among forwarded requests, once it has one.
    permit: Option<Permit>,
}

impl Active {
    pub(super) fn begin(metrics: &Arc<PassthroughMetrics>) -> Self {
        metrics.requests.inc();
        metrics.requests_active.inc();
        Self {
            metrics: Arc::clone(metrics),
            permit: None,
        }
    }

    /// The same, with a place that is given back with it.
    pub(super) fn holding(mut self, permit: Permit) -> Self {
        self.permit = Some(permit);
        self
    }

    pub(super) fn metrics(&self) -> &PassthroughMetrics {
        &self.metrics
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.metrics.requests_active.dec();
    }
}
