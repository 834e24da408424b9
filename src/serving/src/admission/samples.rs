//! Limits for tests of other modules.

use std::time::Duration;

use super::Admission;
use crate::config::AdmissionLimits;

/// Limits that no test reaches.
#[must_use]
pub fn unlimited() -> Admission {
    let limits = AdmissionLimits {
        connections_max: 1_000,
        watches_max: 1_000,
        lists_max: 1_000,
        lists_waiting_max: 0,
        list_wait_max: Duration::ZERO,
        list_stall_max: Duration::from_secs(2),
        memory_max: 0,
    };
    Admission::new(limits, None)
}
