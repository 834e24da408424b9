//! Tracks changes of roles and bindings, and denials, to find the decisions that are older than what may affect them.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;

use super::access::Access;
use super::user::User;

/// The accesses that a change of rights may affect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RoleScope {
    /// All accesses: a cluster role or a cluster role binding has changed.
    Cluster,
    /// Accesses in one namespace: a role or a role binding there has changed.
    Namespace(String),
    /// Roles are known that were not known before; none has changed.
    Known,
}

/// The scopes of several changes of roles.
#[derive(Clone, Debug, Default)]
pub struct ScopeSet {
    is_cluster: bool,
    are_known: bool,
    namespaces: HashSet<String>,
}

impl ScopeSet {
    /// Adds a scope. A set with too many namespaces becomes one that covers everything.
    pub fn insert(&mut self, scope: RoleScope) {
        match scope {
            RoleScope::Namespace(namespace) if self.namespaces.len() < NAMES_MAX => {
                self.namespaces.insert(namespace);
            }
            RoleScope::Cluster | RoleScope::Namespace(_) => self.is_cluster = true,
            RoleScope::Known => self.are_known = true,
        }
    }

    /// Adds the scopes of another set.
    pub fn extend(&mut self, other: Self) {
        self.is_cluster |= other.is_cluster;
        self.are_known |= other.are_known;
        for namespace in other.namespaces {
            self.insert(RoleScope::Namespace(namespace));
        }
    }

    /// Whether the set has no scope.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.is_cluster && !self.are_known && self.namespaces.is_empty()
    }

    /// Whether roles may explain an access otherwise than before.
    #[must_use]
    pub fn may_explain(&self, access: &Access) -> bool {
        self.are_known || self.covers(access)
    }

    /// Whether one of the changes may affect an access.
    #[must_use]
    pub fn covers(&self, access: &Access) -> bool {
        let is_in_namespace = match access {
            Access::Path { .. } => false,
            Access::Resource(access) => self.namespaces.contains(&access.namespace),
        };
        self.is_cluster || is_in_namespace
    }
}

/// Stands for a user. Users with the same hash lose their decisions together, which costs some questions and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserHash(u64);

impl UserHash {
    /// The hash of a user with all its attributes.
    #[must_use]
    pub fn of(user: &User) -> Self {
        Self(FixedState::default().hash_one(user))
    }
}

/// A point in the sequence of changes: their number so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangePoint(u64);

/// The point of the last change of each scope, and of the last denial of each user.
#[derive(Debug, Default)]
pub struct ScopeChanges {
    now: ChangePoint,
    cluster: ChangePoint,
    namespaces: HashMap<String, ChangePoint>,
    /// The last denial of a user that is not in `denials`.
    denial: ChangePoint,
    denials: HashMap<UserHash, ChangePoint>,
}

impl ScopeChanges {
    /// The point after the last change.
    #[must_use]
    pub const fn now(&self) -> ChangePoint {
        self.now
    }

    /// Records changes of roles, which get the same new point.
    pub fn record(&mut self, scopes: &ScopeSet) {
        self.now = ChangePoint(self.now.0 + 1);
        // Too many names to track separately: everything counts as changed.
        if scopes.is_cluster || self.namespaces.len() + scopes.namespaces.len() > NAMES_MAX {
            self.cluster = self.now;
            self.namespaces.clear();
            return;
        }
        for namespace in &scopes.namespaces {
            self.namespaces.insert(namespace.clone(), self.now);
        }
    }

    /// Records that a user was denied an access that was allowed before.
    pub fn record_denial(&mut self, user: UserHash) {
        self.now = ChangePoint(self.now.0 + 1);
        if self.denials.len() >= NAMES_MAX {
            self.denial = self.now;
            self.denials.clear();
            return;
        }
        self.denials.insert(user, self.now);
    }

    /// The point of the last change that may affect a user's access.
    #[must_use]
    pub fn last(&self, user: &User, access: &Access) -> ChangePoint {
        self.last_of_roles(access).max(self.last_denial(user))
    }

    /// Whether no roles changed after `since` that may affect an access.
    #[must_use]
    pub fn are_roles_current(&self, since: ChangePoint, access: &Access) -> bool {
        self.last_of_roles(access) <= since
    }

    /// Whether the user was denied nothing after `since`.
    #[must_use]
    pub fn is_undenied(&self, since: ChangePoint, user: &User) -> bool {
        self.last_denial(user) <= since
    }

    fn last_of_roles(&self, access: &Access) -> ChangePoint {
        let of_namespace = match access {
            Access::Path { .. } => None,
            Access::Resource(access) => self.namespaces.get(&access.namespace),
        };
        of_namespace.copied().unwrap_or_default().max(self.cluster)
    }

    fn last_denial(&self, user: &User) -> ChangePoint {
        // Computed only if it can matter: most clusters never deny anything.
        let own = match self.denials.is_empty() {
            true => None,
            false => self.denials.get(&UserHash::of(user)),
        };
        own.copied().unwrap_or_default().max(self.denial)
    }
}

/// Maximum number of namespaces that are tracked separately, and of users.
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
        ];
        for (scope, expected) in rows {
            let mut changes = ScopeChanges::default();
            let before = changes.now();
            let scope = only(scope);
            changes.record(&scope);
            let after = changes.now();
            for (access, matters) in questions.iter().zip(expected) {
                let context = format!("{scope:?} {access:?}");
                assert_eq!(scope.covers(access), matters, "{context}");
                assert_eq!(
                    changes.are_roles_current(before, access),
                    !matters,
                    "{context}"
                );
                assert!(changes.are_roles_current(after, access));
                assert!(changes.is_undenied(before, &user("jane")));
            }
        }
    }

    #[test]
    fn a_denial_matters_to_its_user_and_to_no_other() {
        let mut changes = ScopeChanges::default();
        let before = changes.now();
        changes.record_denial(UserHash::of(&user("jane")));
        assert!(!changes.is_undenied(before, &user("jane")));
        assert!(changes.is_undenied(changes.now(), &user("jane")));
        assert!(changes.is_undenied(before, &user("joe")));
        assert!(changes.are_roles_current(before, &pods_in("a")));
        assert!(changes.last(&user("jane"), &version()) > changes.last(&user("joe"), &version()));
        for number in 0..=NAMES_MAX {
            changes.record_denial(UserHash::of(&user(&number.to_string())));
        }
        assert!(changes.denials.len() <= NAMES_MAX);
        assert!(!changes.is_undenied(before, &user("joe")), "too many");
    }

    #[test]
    fn names_without_number_count_as_everything() {
        let mut changes = ScopeChanges::default();
        let before = changes.now();
        for number in 0..=NAMES_MAX {
            changes.record(&only(RoleScope::Namespace(number.to_string())));
        }
        assert!(changes.namespaces.len() <= NAMES_MAX);
        assert!(!changes.are_roles_current(before, &pods_in("0")));
        assert!(!changes.are_roles_current(before, &pods_in("other")));
        assert!(changes.are_roles_current(changes.now(), &pods_in("0")));
    }
}
