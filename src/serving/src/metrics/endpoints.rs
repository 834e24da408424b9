//! Metrics of several API servers.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use strum::{IntoStaticStr, VariantArray};

use super::families::{ByLabel, MetricsError, Register, StateGauges};

/// The state of one of several API servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EndpointStateLabel {
    /// It was not checked yet.
    Unchecked,
    /// It is used, or may be.
    Ready,
    /// It answers that it is not ready.
    Unready,
    /// It does not answer.
    Unreachable,
    /// It belongs to another cluster.
    Foreign,
}

/// Why a check of one of several API servers, or a connection to it, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EndpointFailureLabel {
    /// No connection.
    Connect,
    /// Its certificate is not trusted.
    Certificate,
    /// The connection broke.
    Broken,
    /// No answer in time.
    Timeout,
    /// It answered with an error.
    Status,
    /// It belongs to another cluster.
    Foreign,
}

/// Handles of one of several API servers.
#[derive(Clone, Debug)]
pub struct EndpointMetrics {
    /// Its state.
    pub state: StateGauges<EndpointStateLabel>,
    /// 1 if requests go to it.
    pub active: IntGauge,
    /// Times that requests moved to it.
    pub activations: IntCounter,
    /// Failed checks and connections, by reason.
    pub failures: ByLabel<EndpointFailureLabel>,
}

#[derive(Debug)]
pub(super) struct EndpointFamilies {
    state: IntGaugeVec,
    active: IntGaugeVec,
    activations: IntCounterVec,
    failures: IntCounterVec,
}

impl EndpointFamilies {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        Ok(Self {
            state: add.gauges(
                "upstream_endpoint_state",
                "States of several API servers: 1 for the current state, 0 for the others.",
                &["endpoint", "state"],
            )?,
            active: add.gauges(
                "upstream_endpoint_active",
                "Whether requests go to this one of several API servers.",
                &["endpoint"],
            )?,
            activations: add.counters(
                "upstream_endpoint_activations_total",
                "Times requests moved to this one of several API servers.",
                &["endpoint"],
            )?,
            failures: add.counters(
                "upstream_endpoint_failures_total",
                "Failed checks of one of several API servers and failed connections to it, by reason.",
                &["endpoint", "reason"],
            )?,
        })
    }

    /// Handles of an API server. Its name comes from the configuration.
    pub(super) fn of(&self, endpoint: &str) -> EndpointMetrics {
        let values = &[endpoint];
        EndpointMetrics {
            state: StateGauges::resolve(&self.state, values),
            active: self.active.with_label_values(values),
            activations: self.activations.with_label_values(values),
            failures: ByLabel::resolve(&self.failures, values),
        }
    }
}
