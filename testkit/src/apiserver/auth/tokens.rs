//! The users by bearer token, and kube-apiserver's token file: `token,user,uid,"group1,group2"`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use super::user::User;

/// The users by bearer token. Clones share one table.
#[derive(Clone, Default)]
pub struct Tokens(Arc<RwLock<HashMap<String, TokenUser>>>);

/// The user of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenUser {
    /// The user.
    pub user: User,
    /// The audiences that the token is valid for; if empty, the server's own.
    pub audiences: Vec<String>,
}

/// The pod that a service account's token is bound to. Each becomes an extra field of the user; no two tokens have the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodBinding {
    /// The pod's name.
    pub pod_name: String,
    /// The pod's uid; the token is invalid when no pod has it.
    pub pod_uid: String,
    /// The pod's node.
    pub node_name: String,
    /// The node's uid.
    pub node_uid: String,
    /// The token's own id, such as `JTI=…`.
    pub credential_id: String,
}

/// Why a token file cannot be parsed. The messages have nothing of its content, which is secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// It is not UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// A line is too short.
    #[error("line {line}: must have at least 3 columns (token, user name, user uid)")]
    Columns {
        /// The line's number, from 1.
        line: usize,
    },
    /// A quote is where none may be.
    #[error("line {line}: only the groups may be quoted, all together")]
    Quote {
        /// The line's number, from 1.
        line: usize,
    },
}

impl TokenUser {
    /// A user with a name and groups.
    #[must_use]
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let user = User {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..User::default()
        };
        Self {
            user,
            audiences: Vec::new(),
        }
    }

    /// The user of a pod's token. It is invalid when no service account has the uid, or the pod is gone.
    #[must_use]
    pub fn of_pod(namespace: &str, account: &str, account_uid: &str, pod: PodBinding) -> Self {
        let name = format!("system:serviceaccount:{namespace}:{account}");
        let own = format!("system:serviceaccounts:{namespace}");
        let mut user = Self::new(&name, &["system:serviceaccounts", &own]);
        account_uid.clone_into(&mut user.user.uid);
        let extra = [
            ("pod-name", pod.pod_name),
            ("pod-uid", pod.pod_uid),
            ("node-name", pod.node_name),
            ("node-uid", pod.node_uid),
            ("credential-id", pod.credential_id),
        ];
        user.user.extra = extra
            .into_iter()
            .map(|(key, value)| (format!("authentication.kubernetes.io/{key}"), vec![value]))
            .collect();
        user
    }
}

impl Tokens {
    /// Adds a token, or replaces its user.
    pub fn put(&self, token: &str, user: TokenUser) {
        self.0.write().insert(token.to_owned(), user);
    }

    /// Removes a token. Returns whether it existed.
    pub fn remove(&self, token: &str) -> bool {
        self.0.write().remove(token).is_some()
    }

    /// The user of a token, and the audiences of those asked for that it is valid for.
    pub(super) fn user(
        &self,
        token: &str,
        own: &[String],
        asked: &[String],
    ) -> Option<(User, Vec<String>)> {
        let users = self.0.read();
        let found = users.get(token)?;
        let valid = match found.audiences.as_slice() {
            [] => own,
            audiences => audiences,
        };
        let audiences = asked.iter().filter(|audience| valid.contains(audience));
        let audiences: Vec<String> = audiences.cloned().collect();
        let is_valid = asked.is_empty() || !audiences.is_empty();
        is_valid.then(|| (found.user.clone(), audiences))
    }

    /// Parses a token file. Of kube-apiserver's CSV it takes what such files use: quotes only around the groups. The last line of a token
    /// counts, lines without a token do not.
    ///
    /// # Errors
    /// See [`TokenFileError`].
    pub fn from_file(text: &[u8]) -> Result<Self, TokenFileError> {
        let text = std::str::from_utf8(text).map_err(|_| TokenFileError::NotText)?;
        let tokens = Self::default();
        for (index, text) in text
            .lines()
            .enumerate()
            .filter(|(_, text)| !text.is_empty())
        {
            let line = index + 1;
            let columns: Vec<&str> = text.splitn(4, ',').collect();
            let [token, name, uid, groups @ ..] = columns.as_slice() else {
                return Err(TokenFileError::Columns { line });
            };
            let groups = groups.first().copied().unwrap_or_default();
            let quoted = groups
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'));
            // Without quotes the next comma begins a column that is ignored.
            let groups = quoted
                .or_else(|| groups.split(',').next())
                .unwrap_or_default();
            if [*token, *name, *uid, groups]
                .iter()
                .any(|value| value.contains('"'))
            {
                return Err(TokenFileError::Quote { line });
            }
            let groups = groups.split(',').filter(|group| !group.is_empty());
            let mut user = TokenUser::new(name, &groups.collect::<Vec<_>>());
            (*uid).clone_into(&mut user.user.uid);
            if !token.is_empty() {
                tokens.put(token, user);
            }
        }
        Ok(tokens)
    }
}

impl fmt::Debug for Tokens {
    /// Tokens are secret: only their number is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.read().len())
    }
}

impl<'a> FromIterator<(&'a str, TokenUser)> for Tokens {
    fn from_iter<I: IntoIterator<Item = (&'a str, TokenUser)>>(users: I) -> Self {
        let tokens = Self::default();
        for (token, user) in users {
            tokens.put(token, user);
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_has_a_user_in_each_line() {
        let text = "a,ann,1\nb,bob,2,dev\r\n\nc,cy,3,\"dev,ops\"\n,nobody,0\na,amy,4,x,more\n";
        let tokens = Tokens::from_file(text.as_bytes()).unwrap();
        let rows: [(&str, &str, &str, &[&str]); 3] = [
            ("a", "amy", "4", &["x"]),
            ("b", "bob", "2", &["dev"]),
            ("c", "cy", "3", &["dev", "ops"]),
        ];
        for (token, name, uid, groups) in rows {
            let (user, _) = tokens.user(token, &[], &[]).unwrap();
            assert_eq!((user.name.as_str(), user.uid.as_str()), (name, uid));
            assert_eq!(user.groups, groups);
        }
        assert_eq!(format!("{tokens:?}"), "Tokens(3)");
    }

    #[test]
    fn a_broken_token_file_is_refused_by_line() {
        let rows: [(&[u8], TokenFileError); 5] = [
            (b"a,b", TokenFileError::Columns { line: 1 }),
            (b"a,b,c\nx", TokenFileError::Columns { line: 2 }),
            (b"a,b\"b,c", TokenFileError::Quote { line: 1 }),
            (b"a,b,c,\"d", TokenFileError::Quote { line: 1 }),
            (b"\xff,b,c", TokenFileError::NotText),
        ];
        for (text, expected) in rows {
            assert_eq!(Tokens::from_file(text).err(), Some(expected), "{text:?}");
        }
    }
}
