//! The users by bearer token, like in kube-apiserver's token file, but changeable while the server runs.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::auth::user::User;

/// The users by bearer token. Clones share one table.
#[derive(Clone, Default)]
pub struct Tokens(Arc<RwLock<HashMap<String, TokenUser>>>);

/// The user of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenUser {
    /// The user; authentication adds `system:authenticated` to the groups.
    pub user: User,
    /// The audiences that the token is valid for; if empty, the server's own.
    pub audiences: Vec<String>,
}

impl TokenUser {
    /// A user with this name and these groups, valid for the server's own audiences.
    #[must_use]
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self {
            user: User {
                name: name.to_owned(),
                groups: groups.iter().map(|&group| group.to_owned()).collect(),
                ..User::default()
            },
            audiences: Vec::new(),
        }
    }
}

impl Tokens {
    /// Adds a token, or replaces its user. Takes effect immediately.
    pub fn put(&self, token: &str, user: TokenUser) {
        self.write().insert(token.to_owned(), user);
    }

    /// Removes a token. Takes effect immediately. Returns whether the token existed.
    pub fn remove(&self, token: &str) -> bool {
        self.write().remove(token).is_some()
    }

    /// The user of a token, and those of the requested audiences that the token is valid for. `own` are the server's audiences.
    /// `None` if the token is unknown, or valid for none of the requested audiences.
    pub(super) fn user(
        &self,
        token: &str,
        own: &[String],
        requested: &[String],
    ) -> Option<(User, Vec<String>)> {
        let users = self.read();
        let found = users.get(token)?;
        let valid_for = match found.audiences.as_slice() {
            [] => own,
            audiences => audiences,
        };
        let mut audiences: Vec<String> = requested.to_vec();
        audiences.retain(|audience| valid_for.contains(audience));
        if audiences.is_empty() && !requested.is_empty() {
            return None;
        }
        Some((found.user.clone(), audiences))
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, TokenUser>> {
        self.0.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, TokenUser>> {
        self.0.write()
    }
}

impl fmt::Debug for Tokens {
    /// Shows the number of tokens only: tokens are secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Tokens({})", self.read().len())
    }
}

impl<'a> FromIterator<(&'a str, TokenUser)> for Tokens {
    fn from_iter<I: IntoIterator<Item = (&'a str, TokenUser)>>(users: I) -> Self {
        let users = users.into_iter();
        let users = users.map(|(token, user)| (token.to_owned(), user));
        Self(Arc::new(RwLock::new(users.collect())))
    }
}
