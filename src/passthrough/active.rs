//! One forwarded request, counted as active from its arrival until nothing of its answer is left to send.

use std::sync::Arc;

use super::lanes::LanePermit;
use crate::fairness::Permit;
use crate::metrics::PassthroughMetrics;
use crate::upstream::client::BodySendGuard;

/// Held by whatever the request waits for: the exchange, then the body or the tunnel.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    metrics: Arc<PassthroughMetrics>,
    /// Its client's places among forwarded requests, once it has them.
    _places: Option<LanePermit>,
    /// A place under which it is forwarded at all.
    _permit: Option<Arc<Permit>>,
    /// In its answer, while its body is being sent.
    _interest: Option<BodySendGuard>,
}

impl ActiveRequest {
    pub(super) fn begin(metrics: &Arc<PassthroughMetrics>, permit: Option<Arc<Permit>>) -> Self {
        metrics.requests.inc();
        metrics.requests_active.inc();
        Self {
            metrics: Arc::clone(metrics),
            _places: None,
            _permit: permit,
            _interest: None,
        }
    }

    /// The same, with places that are given back with it.
    pub(super) fn holding(mut self, places: LanePermit) -> Self {
        self._places = Some(places);
        self
    }

    /// The same, with whose end the request's body ends.
    pub(super) fn interested(mut self, interest: Option<BodySendGuard>) -> Self {
        self._interest = interest;
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
