//! When requirements are checked again.

use std::time::Duration;

use super::requirement::Requirement;
use crate::auth::explanation::Explanation;

/// How often requirements are checked, and how long leases outlive the last confirmation.
#[derive(Clone, Copy, Debug)]
pub struct RecheckTimes {
    /// Requirements that no event covers are checked at most once in this interval.
    pub interval: Duration,
    /// A lease is revoked when checks have been failing for this time.
    pub grace: Duration,
    /// Whether accesses that roles explain are decided here, so that checking them costs upstream nothing.
    pub decides_by_roles: bool,
}

impl RecheckTimes {
    /// Whether a check costs upstream nothing.
    pub(super) fn is_local(self, requirement: &Requirement, explanation: Explanation) -> bool {
        match requirement {
            Requirement::Certificate { .. } => true,
            Requirement::Access(_) => self.decides_by_roles && explanation == Explanation::Roles,
            Requirement::Token { .. } => false,
        }
    }

    /// From a confirmation to the next check. Random, so that what was confirmed together is not checked together.
    pub(super) fn interval(self, requirement: &Requirement, explanation: Explanation) -> Duration {
        match self.is_local(requirement, explanation) {
            true => self
                .interval
                .min(LOCAL_INTERVAL_MAX)
                .mul_f64(0.5 + 0.35 * crate::resource::fraction()),
            false => self
                .interval
                .mul_f64(1.0 + 0.2 * crate::resource::fraction()),
        }
    }

    /// From a confirmation to the check that follows whatever covers the requirement. Accesses are spread more widely: after a restart all
    /// of them are confirmed at once. Most tokens are replaced before.
    pub(super) fn lifetime(requirement: &Requirement) -> Duration {
        let spread = match requirement {
            Requirement::Access(_) => ACCESS_SPREAD,
            Requirement::Token { .. } | Requirement::Certificate { .. } => TOKEN_SPREAD,
        };
        LIFETIME_MAX - spread.mul_f64(crate::resource::fraction())
    }
}

/// What costs upstream nothing is checked at least this often.
const LOCAL_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The longest time from a confirmation to the next check; the check itself needs the rest of the hour.
const LIFETIME_MAX: Duration = Duration::from_secs(59 * 60);
const ACCESS_SPREAD: Duration = Duration::from_secs(14 * 60);
const TOKEN_SPREAD: Duration = Duration::from_secs(4 * 60);
