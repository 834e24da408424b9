//! Changes of roles and bindings, and which decisions may be older than one that matters to them.

use std::collections::{HashMap, HashSet};

use super::access::Access;

/// What a change of a role or a binding may matter to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RoleScope {
    /// Everything: of a cluster role, or of a binding to the whole cluster.
    Cluster,
    /// What is asked about one namespace.
    Namespace(String),
}

/// Scopes of several changes.
#[derive(Debug, Default)]
pub struct ScopeSet {
    is_cluster: bool,
    namespaces: HashSet<String>,
}

impl ScopeSet {
    /// Adds one.
    pub fn insert(&mut self, scope: RoleScope) {
        match scope {
            RoleScope::Namespace(namespace) if self.namespaces.len() < NAMESPACES_MAX => {
                self.namespaces.insert(namespace);
            }
            RoleScope::Cluster | RoleScope::Namespace(_) => self.is_cluster = true,
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.is_cluster && self.namespaces.is_empty()
    }

    /// Whether one of the changes may matter to an access.
    #[must_use]
    pub fn covers(&self, access: &Access) -> bool {
        match access {
            Access::Path { .. } => self.is_cluster,
            Access::Resource(access) => {
                self.is_cluster || self.namespaces.contains(&access.namespace)
            }
        }
    }
}

/// A moment between two changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// The last changes by scope.
#[derive(Debug, Default)]
pub struct Changes {
    now: Moment,
    cluster: Moment,
    namespaces: HashMap<String, Moment>,
}

impl Changes {
    /// Now.
    #[must_use]
    pub const fn now(&self) -> Moment {
        self.now
    }

    /// Changes have been seen.
    pub fn record(&mut self, scopes: &ScopeSet) {
        self.now = Moment(self.now.0 + 1);
        let new = self.namespaces.len() + scopes.namespaces.len();
        // More namespaces are not told apart: everything is taken for changed.
        if scopes.is_cluster || new > NAMESPACES_MAX {
            self.cluster = self.now;
            self.namespaces.clear();
            return;
        }
        for namespace in &scopes.namespaces {
            self.namespaces.insert(namespace.clone(), self.now);
        }
    }

    /// Whether nothing has changed since that may matter to an access.
    #[must_use]
    pub fn is_current(&self, since: Moment, access: &Access) -> bool {
        let of_namespace = match access {
            Access::Path { .. } => None,
            Access::Resource(access) => self.namespaces.get(&access.namespace),
        };
        self.cluster <= since && of_namespace.is_none_or(|changed| *changed <= since)
    }
}

/// Namespaces whose changes are told apart.
const NAMESPACES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::access::ResourceAccess;

    fn pods_in(namespace: &str) -> Access {
        Access::Resource(ResourceAccess {
            namespace: namespace.to_owned(),
            ..ResourceAccess::default()
        })
    }

    fn version() -> Access {
        Access::Path {
            verb: "get".to_owned(),
            path: "/version".to_owned(),
        }
    }

    fn only(scope: RoleScope) -> ScopeSet {
        let mut scopes = ScopeSet::default();
        assert!(scopes.is_empty());
        scopes.insert(scope);
        assert!(!scopes.is_empty());
        scopes
    }

    #[test]
    fn a_change_matters_to_its_namespace_or_to_everything() {
        let questions = [pods_in(""), pods_in("a"), pods_in("b"), version()];
        let rows = [
            (RoleScope::Cluster, [true, true, true, true]),
            (
                RoleScope::Namespace("a".to_owned()),
                [false, true, false, false],
            ),
        ];
        for (scope, expected) in rows {
            let mut changes = Changes::default();
            let before = changes.now();
            let scope = only(scope);
            changes.record(&scope);
            let after = changes.now();
            for (access, matters) in questions.iter().zip(expected) {
                assert_eq!(scope.covers(access), matters, "{scope:?} {access:?}");
                assert_eq!(
                    changes.is_current(before, access),
                    !matters,
                    "{scope:?} {access:?}"
                );
                assert!(changes.is_current(after, access));
            }
        }
    }

    #[test]
    fn namespaces_without_number_count_as_everything() {
        let mut changes = Changes::default();
        let before = changes.now();
        for number in 0..=NAMESPACES_MAX {
            changes.record(&only(RoleScope::Namespace(number.to_string())));
        }
        assert!(changes.namespaces.len() <= NAMESPACES_MAX);
        assert!(!changes.is_current(before, &pods_in("0")));
        assert!(!changes.is_current(before, &pods_in("other")));
        assert!(changes.is_current(changes.now(), &pods_in("0")));
    }
}
