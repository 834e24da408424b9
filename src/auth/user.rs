//! Callers, as the API server knows them.

use std::collections::BTreeMap;

/// The name of callers without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of callers without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all who have shown who they are.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group that may do everything, whatever roles say.
pub const MASTERS: &str = "system:masters";

/// What a string needs beside its bytes.
const TEXT_LEN: usize = size_of::<String>();

/// Names of service accounts begin so; namespace and name follow, with a colon between.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// A caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// Empty for nobody; such a user is not authenticated.
    pub name: String,
    /// Empty if not known.
    pub uid: String,
    /// In the order in which they were told.
    pub groups: Vec<String>,
    /// What else an authenticator said of it.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A caller without credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Whether it belongs to a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }

    /// The same as one of the authenticated, unless it is said to be one or not to be one.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        let is_decided = self.is_in(AUTHENTICATED) || self.is_in(UNAUTHENTICATED);
        if self.name != ANONYMOUS && !is_decided {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Bytes of all its strings, about.
    #[must_use]
    pub fn text_len(&self) -> usize {
        let of_all = |texts: &[String]| {
            texts
                .iter()
                .map(|text| text.len() + TEXT_LEN)
                .sum::<usize>()
        };
        let extra = self.extra.iter();
        let extra_len: usize = extra
            .map(|(key, values)| key.len() + TEXT_LEN + of_all(values))
            .sum();
        self.name.len() + self.uid.len() + of_all(&self.groups) + extra_len
    }

    /// Namespace and name, if it is a service account.
    #[must_use]
    pub fn service_account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self
            .name
            .strip_prefix(SERVICE_ACCOUNT_PREFIX)?
            .split_once(':')?;
        let is_whole = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
        is_whole.then_some((namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..User::default()
        }
    }

    #[test]
    fn who_has_shown_credentials_is_one_of_the_authenticated() {
        let rows = [
            (user("a", &["g"]), user("a", &["g", AUTHENTICATED])),
            (user("a", &[AUTHENTICATED]), user("a", &[AUTHENTICATED])),
            (user("a", &[UNAUTHENTICATED]), user("a", &[UNAUTHENTICATED])),
            (User::anonymous(), User::anonymous()),
        ];
        for (told, expected) in rows {
            assert_eq!(told.authenticated(), expected);
        }
    }

    #[test]
    fn service_accounts_are_known_by_their_names() {
        let rows = [
            ("system:serviceaccount:a:b", Some(("a", "b"))),
            ("system:serviceaccount:a:", None),
            ("system:serviceaccount::b", None),
            ("system:serviceaccount:a", None),
            ("system:serviceaccount:a:b:c", None),
            ("serviceaccount:a:b", None),
        ];
        for (name, expected) in rows {
            assert_eq!(user(name, &[]).service_account(), expected, "{name}");
        }
    }
}
