//! One forwarded request, counted as active from its arrival until nothing of its answer is left to send.

use std::sync::Arc;

use crate::metrics::PassthroughMetrics;

/// Held by whatever the request waits for: the exchange, then the body or the tunnel.
#[derive(Debug)]
pub(super) struct Active(Arc<PassthroughMetrics>);

impl Active {
    pub(super) fn begin(metrics: &Arc<PassthroughMetrics>) -> Self {
        metrics.requests.inc();
        metrics.requests_active.inc();
        Self(Arc::clone(metrics))
    }

    pub(super) fn metrics(&self) -> &PassthroughMetrics {
        &self.0
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.requests_active.dec();
    }
}
