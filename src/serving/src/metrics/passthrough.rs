//! Metrics of forwarded requests.

use prometheus::{IntCounter, IntGauge, Registry};

use super::admission::Shortages;
use super::families::{ByLabel, MetricsError, Register};
use super::labels::PassthroughError;
use super::sharded::ShardedCounter;

/// Handles of forwarded requests. They have no resource label, because clients can send any path.
#[derive(Clone, Debug)]
pub struct PassthroughMetrics {
    /// Requests that were forwarded.
    pub requests: IntCounter,
    /// Forwarded requests whose response is not yet complete.
    pub requests_active: IntGauge,
    /// Upgraded connections: exec, attach, port-forward.
    pub upgrades: IntCounter,
    /// Requests that could not be forwarded, or whose response failed, by reason.
    pub errors: ByLabel<PassthroughError>,
    /// Requests that found no free permit, by the bound that was reached.
    pub shortages: Shortages,
    /// Bytes of bodies and upgraded streams from clients to upstream.
    pub bytes_sent: ShardedCounter,
    /// Bytes of bodies and upgraded streams from upstream to clients.
    pub bytes_received: ShardedCounter,
}

impl PassthroughMetrics {
    pub(super) fn register(
        registry: &Registry,
        shortages: Shortages,
    ) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let sent = add.sharded(
            "passthrough_sent_bytes_total",
            "Bytes forwarded from clients to upstream.",
            &[],
        )?;
        let received = add.sharded(
            "passthrough_received_bytes_total",
            "Bytes forwarded from upstream to clients.",
            &[],
        )?;
        Ok(Self {
            requests: add.counter(
                "passthrough_requests_total",
                "Requests forwarded to upstream.",
            )?,
            requests_active: add.gauge(
                "passthrough_requests_active",
                "Forwarded requests whose response is not yet complete, open tunnels included.",
            )?,
            upgrades: add.counter(
                "passthrough_upgrades_total",
                "Forwarded connections that were upgraded: exec, attach, port-forward.",
            )?,
            errors: add.by_label(
                "passthrough_errors_total",
                "Requests that could not be forwarded, and responses and tunnels that broke off, by reason.",
                "reason",
            )?,
            shortages,
            bytes_sent: sent.of(&[]),
            bytes_received: received.of(&[]),
        })
    }
}
