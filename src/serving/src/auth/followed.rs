//! What the gateway notices by itself, so that it need not ask for it again and again. Tasks that follow upstream write it; the checks of
//! open streams read it. Until somebody says otherwise, nothing is followed.

use parking_lot::Mutex;

/// Which of upstream's decisions follow from what the gateway watches.
#[derive(Debug, Default)]
pub struct Followed {
    has_bound_objects: Mutex<bool>,
    authorizers: Mutex<Authorizers>,
}

/// What is known of upstream's authorizers.
#[derive(Clone, Copy, Debug, Default)]
struct Authorizers {
    state: AuthorizerState,
    /// Two tokens of one user got different answers.
    is_contradicted: bool,
}

/// Whether roles and the rules for nodes explain all decisions of upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
        *self.has_bound_objects.lock()
    }

    /// Sets whether the deletion of pods and service accounts is noticed.
    pub fn set_bound_objects(&self, are_followed: bool) {
        *self.has_bound_objects.lock() = are_followed;
    }

    /// What is known of upstream's authorizers.
    #[must_use]
    pub fn authorizers(&self) -> AuthorizerState {
        self.authorizers.lock().state
    }

    /// Sets what is known of upstream's authorizers.
    pub fn set_authorizers(&self, state: AuthorizerState) {
        let mut authorizers = self.authorizers.lock();
        if !authorizers.is_contradicted {
            authorizers.state = state;
        }
    }

    /// Records that upstream answered two tokens of one user differently: its authorizers count as opaque until the end of the process.
    pub fn contradict(&self) {
        let mut authorizers = self.authorizers.lock();
        *authorizers = Authorizers {
            state: AuthorizerState::Opaque,
            is_contradicted: true,
        };
    }

    /// Whether upstream has answered two tokens of one user differently.
    #[must_use]
    pub fn is_contradicted(&self) -> bool {
        self.authorizers.lock().is_contradicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_counts_as_opaque() {
        let followed = Followed::default();
        assert_eq!(followed.authorizers(), AuthorizerState::Opaque);
        followed.set_authorizers(AuthorizerState::Transparent);
        assert_eq!(followed.authorizers(), AuthorizerState::Transparent);
        followed.contradict();
        followed.set_authorizers(AuthorizerState::Transparent);
        assert_eq!(followed.authorizers(), AuthorizerState::Opaque, "for good");
    }
}
