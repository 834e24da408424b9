//! Why an access is allowed, as far as the gateway can tell, and whether that stands until an event.

use super::question::QuestionKey;

/// What makes an access allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Explanation {
    /// Upstream's answer; why is not known.
    #[default]
    None,
    /// A role that the gateway follows.
    Roles,
    /// The node authorizer's fixed rules for all nodes.
    NodeRules,
}

/// What the gateway notices by itself now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coverage {
    /// Only RBAC and the node authorizer decide upstream.
    pub is_transparent: bool,
    /// Roles and bindings are followed, and all of them are known.
    pub has_roles: bool,
    /// The deletion of pods and service accounts is noticed.
    pub has_bound_objects: bool,
}

impl Coverage {
    /// Whether a decision stands until an event. An answer to a caller's own review also says that its token is valid, which no role shows.
    #[must_use]
    pub const fn stands(self, key: &QuestionKey, explanation: Explanation) -> bool {
        if !key.is_shared() {
            return false;
        }
        match explanation {
            Explanation::Roles => self.is_transparent && self.has_roles,
            Explanation::NodeRules => self.is_transparent,
            Explanation::None => false,
        }
    }
}
