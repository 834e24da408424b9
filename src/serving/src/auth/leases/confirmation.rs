//! What an answer says of a requirement.

use tokio::time::Instant;

use crate::auth::explanation::Explanation;

/// The last confirmation that a requirement is met.
#[derive(Clone, Copy, Debug)]
pub struct Confirmation {
    /// The time as of which the requirement was met: for a review, when it was sent.
    pub at: Instant,
    /// Roles have changed since. The requirement has to be checked as soon as a stream depends on it.
    pub is_doubtful: bool,
    /// What makes an access allowed.
    pub explanation: Explanation,
}

impl Confirmation {
    /// A confirmation of a credential.
    #[must_use]
    pub const fn credential(at: Instant) -> Self {
        Self {
            at,
            is_doubtful: false,
            explanation: Explanation::None,
        }
    }
}
