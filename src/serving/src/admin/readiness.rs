//! What the readiness of the gateway consists of.

use crate::metrics::ReadinessLabel;

/// The source of readiness checks; the composition root implements it.
pub trait Readiness: Send + Sync {
    /// All checks, in the order in which `/readyz?verbose` lists them.
    fn checks(&self) -> Vec<ReadinessCheck>;
}

/// One line of `/readyz?verbose`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadinessCheck {
    /// Name of the check: `upstream`, or a resource such as `pods.v1`.
    pub name: String,
    /// The kind that the metric shows; `None` for a note, which never fails.
    pub kind: Option<ReadinessLabel>,
    /// Result of the check.
    pub outcome: CheckOutcome,
}

impl ReadinessCheck {
    /// Whether the check passed.
    #[must_use]
    pub const fn has_passed(&self) -> bool {
        matches!(self.outcome, CheckOutcome::Passed(_))
    }
}

/// The result of a readiness check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The check passed. The text is a note for operators, and may be empty.
    Passed(String),
    /// The check failed, for this reason, so the replica is not ready.
    Failed(String),
}
