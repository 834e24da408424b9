//! Metrics of the audit log.

use prometheus::{IntCounter, Registry};

use super::families::{ByLabel, MetricsError, Register};
use super::labels::AuditEvents;

/// Handles of the audit log.
#[derive(Clone, Debug)]
pub struct AuditMetrics {
    /// Events, by whether they were written.
    pub events: ByLabel<AuditEvents>,
    /// Failed attempts to write events, or to delete rotated files.
    pub write_errors: IntCounter,
}

impl AuditMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        Ok(Self {
            events: add.by_label(
                "audit_events_total",
                "Audit events, by whether they were written or dropped.",
                "result",
            )?,
            write_errors: add.counter(
                "audit_write_errors_total",
                "Failed attempts to write audit events.",
            )?,
        })
    }
}
