//! Users by bearer token, as kube-apiserver's token file has them; may be changed while the server runs.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::auth::user::User;

/// Users by token. Clones are the same users.
#[derive(Clone, Default)]
pub struct Tokens(Arc<RwLock<HashMap<String, TokenUser>>>);

/// Whom a token stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenUser {
    /// The user; `system:authenticated` is added to the groups.
    pub user: User,
    /// What the token is good for; none means the server's own audiences.
    pub audiences: Vec<String>,
}

impl TokenUser {
    /// A user in these groups.
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
    /// Makes a token good for a user, from now on.
    pub fn put(&self, token: &str, user: TokenUser) {
        self.write().insert(token.to_owned(), user);
    }

    /// Takes a token away, from now on; says whether there was one.
    pub fn remove(&self, token: &str) -> bool {
        self.write().remove(token).is_some()
    }

    /// The user of a token, and which of the wanted audiences it is good for: at least one, unless none is wanted.
    pub(super) fn user(
        &self,
        token: &str,
        own: &[String],
        wanted: &[String],
    ) -> Option<(User, Vec<String>)> {
        let users = self.read();
        let found = users.get(token)?;
        let good_for = match found.audiences.as_slice() {
            [] => own,
            named => named,
        };
        let mut audiences: Vec<String> = wanted.to_vec();
        audiences.retain(|one| good_for.contains(one));
        if audiences.is_empty() && !wanted.is_empty() {
            return None;
        }
        Some((found.user.clone(), audiences))
    }

    // Nothing under the lock panics half way.
    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, TokenUser>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, TokenUser>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tokens {
    /// How many there are; never which.
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
