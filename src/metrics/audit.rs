//! What is counted of the audit log.

use prometheus::{IntCounter, Registry};

use super::MetricsError;
use super::families::{ByLabel, Register};
use super::labels::AuditEvents;

/// Handles of the audit log.
#[derive(Clone, Debug)]
pub struct AuditMetrics {
    /// Events, by what became of them.
    pub events: ByLabel<AuditEvents>,
    /// Failures to write, or to remove old files.
    pub write_errors: IntCounter,
}

impl AuditMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let events = Register(registry).counters(
            "audit_events_total",
            "Audit events, by what became of them.",
            &["result"],
        )?;
        let write_errors = IntCounter::new(
            "audit_write_errors_total",
            "Failed attempts to write audit events, or to remove old audit files.",
        )?;
        registry.register(Box::new(write_errors.clone()))?;
        Ok(Self {
            events: ByLabel::resolve(&events, &[]),
            write_errors,
        })
    }
}
