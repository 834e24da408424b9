//! Users as the API server represents them.

use std::collections::BTreeMap;

/// The user of a request without credentials.
pub(in crate::apiserver) const ANONYMOUS: &str = "system:anonymous";
/// The group of requests without credentials.
pub(in crate::apiserver) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all other users.
pub(in crate::apiserver) const AUTHENTICATED: &str = "system:authenticated";
/// The group whose members may do everything.
pub(in crate::apiserver) const MASTERS: &str = "system:masters";

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Unique id; empty if unknown.
    pub uid: String,
    /// Groups, in the authenticator's order.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The user with the group of all that have shown credentials.
    pub(super) fn authenticated(mut self) -> Self {
        let is_decided = self.is_in(AUTHENTICATED) || self.is_in(UNAUTHENTICATED);
        if self.name != ANONYMOUS && !is_decided {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Namespace and name, if the user is a service account.
    pub(super) fn service_account(&self) -> Option<(&str, &str)> {
        let names = self.name.strip_prefix("system:serviceaccount:")?;
        names.split_once(':').filter(|(namespace, name)| {
            !namespace.is_empty() && !name.is_empty() && !name.contains(':')
        })
    }
}
