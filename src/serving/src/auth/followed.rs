//! What the gateway notices by itself, so that it need not ask for it again and again. Tasks that follow upstream write it; the checks of
//! open streams read it. Until somebody says otherwise, nothing is followed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Which of upstream's decisions follow from what the gateway watches.
#[derive(Debug, Default)]
pub struct Followed {
    bound_objects: AtomicBool,
    authorizers: Mutex<Authorizers>,
}

/// What is known of upstream's authorizers, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Authorizers {
    state: AuthorizerState,
    opaque_since: Option<Instant>,
}

/// Whether roles and the rules for nodes explain all decisions of upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizerState {
    /// Something else may decide too, such as a webhook, or nobody has found out. Each decision holds for one user with all its attributes.
    #[default]
    Opaque,
    /// Only RBAC and the node authorizer decide, and neither reads which pod a token belongs to.
    Transparent,
}

impl Followed {
    /// Whether the deletion of pods and service accounts is noticed.
    #[must_use]
    pub fn has_bound_objects(&self) -> bool {
        self.bound_objects.load(Ordering::Relaxed)
    }

    /// Sets whether the deletion of pods and service accounts is noticed.
    pub fn set_bound_objects(&self, are_followed: bool) {
        self.bound_objects.store(are_followed, Ordering::Relaxed);
    }

    /// What is known of upstream's authorizers.
    #[must_use]
    pub fn authorizers(&self) -> AuthorizerState {
        self.authorizers.lock().state
    }

    /// Sets what is known of upstream's authorizers.
    pub fn set_authorizers(&self, state: AuthorizerState) {
        let mut authorizers = self.authorizers.lock();
        let opaque_since = match state {
            AuthorizerState::Transparent => None,
            AuthorizerState::Opaque => authorizers.opaque_since.or_else(|| Some(Instant::now())),
        };
        *authorizers = Authorizers {
            state,
            opaque_since,
        };
    }

    /// For how long upstream's authorizers have been opaque; zero if they are not, or never were transparent.
    #[must_use]
    pub fn opaque_for(&self) -> Duration {
        let authorizers = self.authorizers.lock();
        authorizers
            .opaque_since
            .map_or(Duration::ZERO, |since| since.elapsed())
    }
}
