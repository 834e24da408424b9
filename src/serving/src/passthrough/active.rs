//! One forwarded request, counted as active from its arrival until its response is completely sent.

use std::sync::Arc;

use super::lanes::LanePermit;
use crate::fairness::Permit;
use crate::metrics::PassthroughMetrics;
use crate::upstream::client::BodySendGuard;

/// Held during the exchange, then by the response's body or the tunnel.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    metrics: Arc<PassthroughMetrics>,
    /// Its permit among forwarded requests, once it has one.
    _lane_permit: Option<LanePermit>,
    /// A permit that must be held to forward the request at all.
    _permit: Option<Arc<Permit>>,
    /// Stops the sending of the request's body when it is dropped.
    _send_guard: Option<BodySendGuard>,
}

impl ActiveRequest {
    pub(super) fn begin(metrics: &Arc<PassthroughMetrics>, permit: Option<Arc<Permit>>) -> Self {
        metrics.requests.inc();
        metrics.requests_active.inc();
        Self {
            metrics: Arc::clone(metrics),
            _lane_permit: None,
            _permit: permit,
            _send_guard: None,
        }
    }

    /// Stores the permit until the request has ended.
    pub(super) fn with_permit(mut self, permit: LanePermit) -> Self {
        self._lane_permit = Some(permit);
        self
    }

    /// Stores the guard that ends the request's body.
    pub(super) fn with_send_guard(mut self, guard: Option<BodySendGuard>) -> Self {
        self._send_guard = guard;
        self
    }

    pub(super) const fn metrics(&self) -> &Arc<PassthroughMetrics> {
        &self.metrics
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.metrics.requests_active.dec();
    }
}
