//! Tracks changes of roles and bindings, to find the decisions that are older than a change which may affect them.

use std::collections::{HashMap, HashSet};

use super::access::Access;
use super::user::User;

/// The accesses that a change of rights may affect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RoleScope {
    /// All accesses: a cluster role or a cluster role binding has changed.
    Cluster,
    /// Accesses in one namespace: a role or a role binding there has changed.
    Namespace(String),
    /// Accesses of one user: it was denied an access that was allowed before.
    User(String),
}

/// The scopes of several changes.
#[derive(Debug, Default)]
pub struct ScopeSet {
    is_cluster: bool,
    namespaces: HashSet<String>,
    users: HashSet<String>,
}

impl ScopeSet {
    /// Adds a scope. A set with too many namespaces and users becomes one that covers everything.
    pub fn insert(&mut self, scope: RoleScope) {
        let has_room = self.namespaces.len() + self.users.len() < NAMES_MAX;
        match scope {
            RoleScope::Namespace(namespace) if has_room => {
                self.namespaces.insert(namespace);
            }
            RoleScope::User(user) if has_room => {
                self.users.insert(user);
            }
            RoleScope::Cluster | RoleScope::Namespace(_) | RoleScope::User(_) => {
                self.is_cluster = true;
            }
        }
    }

    /// Whether the set has no scope.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.is_cluster && self.namespaces.is_empty() && self.users.is_empty()
    }

    /// Whether one of the changes may affect a user's access.
    #[must_use]
    pub fn covers(&self, user: &User, access: &Access) -> bool {
        let is_in_namespace = match access {
            Access::Path { .. } => false,
            Access::Resource(access) => self.namespaces.contains(&access.namespace),
        };
        self.is_cluster || is_in_namespace || self.users.contains(&user.name)
    }
}

/// A point in the sequence of changes: their number so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangePoint(u64);

/// The point of the last change of each scope.
#[derive(Debug, Default)]
pub struct ScopeChanges {
    now: ChangePoint,
    cluster: ChangePoint,
    namespaces: HashMap<String, ChangePoint>,
    users: HashMap<String, ChangePoint>,
}

impl ScopeChanges {
    /// The point after the last change.
    #[must_use]
    pub const fn now(&self) -> ChangePoint {
        self.now
    }

    /// Records changes, which get the same new point.
    pub fn record(&mut self, scopes: &ScopeSet) {
        self.now = ChangePoint(self.now.0 + 1);
        let known = self.namespaces.len() + self.users.len();
        let new = scopes.namespaces.len() + scopes.users.len();
        // Too many names to track separately: everything counts as changed.
        if scopes.is_cluster || known + new > NAMES_MAX {
            self.cluster = self.now;
            self.namespaces.clear();
            self.users.clear();
            return;
        }
        for namespace in &scopes.namespaces {
            self.namespaces.insert(namespace.clone(), self.now);
        }
        for user in &scopes.users {
            self.users.insert(user.clone(), self.now);
        }
    }

    /// The point of the last change that may affect a user's access.
    #[must_use]
    pub fn last(&self, user: &User, access: &Access) -> ChangePoint {
        let of_namespace = match access {
            Access::Path { .. } => None,
            Access::Resource(access) => self.namespaces.get(&access.namespace),
        };
        let of_user = self.users.get(&user.name);
        of_namespace
            .into_iter()
            .chain(of_user)
            .copied()
            .fold(self.cluster, ChangePoint::max)
    }
    /// Whether no change after `since` may affect a user's access.
    #[must_use]
    pub fn is_current(&self, since: ChangePoint, user: &User, access: &Access) -> bool {
        self.last(user, access) <= since
    }
}

/// Maximum number of namespaces and users that are tracked separately.
const NAMES_MAX: usize = 10_000;

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

    fn user(name: &str) -> User {
        User {
            name: name.to_owned(),
            ..User::default()
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
            (RoleScope::User("jane".to_owned()), [true; 4]),
            (RoleScope::User("joe".to_owned()), [false; 4]),
        ];
        for (scope, expected) in rows {
            let mut changes = ScopeChanges::default();
            let before = changes.now();
            let scope = only(scope);
            changes.record(&scope);
            let after = changes.now();
            for (access, matters) in questions.iter().zip(expected) {
                assert_eq!(
                    scope.covers(&user("jane"), access),
                    matters,
                    "{scope:?} {access:?}"
                );
                assert_eq!(
                    changes.is_current(before, &user("jane"), access),
                    !matters,
                    "{scope:?} {access:?}"
                );
                assert!(changes.is_current(after, &user("jane"), access));
            }
        }
    }

    #[test]
    fn names_without_number_count_as_everything() {
        let mut changes = ScopeChanges::default();
        let before = changes.now();
        for number in 0..=NAMES_MAX {
            changes.record(&only(RoleScope::Namespace(number.to_string())));
        }
        assert!(changes.namespaces.len() <= NAMES_MAX);
        assert!(!changes.is_current(before, &user("jane"), &pods_in("0")));
        assert!(!changes.is_current(before, &user("jane"), &pods_in("other")));
        assert!(changes.is_current(changes.now(), &user("jane"), &pods_in("0")));
    }
}
