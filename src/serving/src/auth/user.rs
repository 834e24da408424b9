//! Users as the API server represents them: a name, a uid, groups and extra attributes.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The user name of a request without a credential.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of requests without a credential.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group whose members may do everything, regardless of roles.
pub const MASTERS: &str = "system:masters";

/// The key of a user's extra attributes under which OpenShift keeps the scopes of a token.
const SCOPES: &str = "scopes.authorization.openshift.io";
/// The scope that limits nothing.
const FULL_SCOPE: &str = "user:full";

/// The keys of extra attributes that tell the tokens of one service account apart. Neither roles nor the node authorizer read them.
const TOKEN_KEYS: [&str; 5] = [
    POD_UID,
    "authentication.kubernetes.io/pod-name",
    "authentication.kubernetes.io/node-name",
    "authentication.kubernetes.io/node-uid",
    "authentication.kubernetes.io/credential-id",
];
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// Size in bytes of a string without its contents.
const TEXT_LEN: usize = size_of::<String>();

/// Prefix of a service account's user name. The namespace and the name follow, separated by a colon.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The identity of a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// The user name. Empty means that there is no user; such a user is never authenticated.
    pub name: String,
    /// The unique id; empty if unknown.
    pub uid: String,
    /// Groups, in the order in which the authenticator returned them.
    pub groups: Vec<String>,
    /// Further attributes from the authenticator, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without a credential.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Whether the user belongs to a group.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }

    /// Whether OpenShift's scopes allow this user's credential less than the user may do.
    #[must_use]
    pub fn is_scoped(&self) -> bool {
        let scopes = self.extra.get(SCOPES);
        scopes.is_some_and(|scopes| scopes.iter().any(|scope| scope != FULL_SCOPE))
    }

    /// The same user with the group `system:authenticated`. Unchanged if the user is anonymous, or has this group or
    /// `system:unauthenticated` already.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        let is_decided = self.is_in(AUTHENTICATED) || self.is_in(UNAUTHENTICATED);
        if self.name != ANONYMOUS && !is_decided {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// The user without what tells its tokens apart, for whom authorizers that do not read that decide alike.
    #[must_use]
    pub fn principal(self: &Arc<Self>) -> Arc<Self> {
        if !TOKEN_KEYS.iter().any(|key| self.extra.contains_key(*key)) {
            return Arc::clone(self);
        }
        let mut principal = (**self).clone();
        principal
            .extra
            .retain(|key, _| !TOKEN_KEYS.contains(&&**key));
        Arc::new(principal)
    }

    /// The uid of the pod to which the token is bound; `None` if it is bound to none.
    #[must_use]
    pub fn pod_uid(&self) -> Option<&str> {
        let uids = self.extra.get(POD_UID)?;
        uids.first().map(String::as_str)
    }

    /// Approximate memory of all strings, in bytes.
    #[must_use]
    pub fn text_len(&self) -> usize {
        let extra_len: usize = self
            .extra
            .iter()
            .map(|(key, values)| key.len() + TEXT_LEN + total_len(values))
            .sum();
        self.name.len() + self.uid.len() + total_len(&self.groups) + extra_len
    }

    /// Namespace and name of the service account, if the user is one.
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

/// The user name of a service account; `None` if these cannot be its namespace and name.
#[must_use]
pub fn service_account_user(namespace: &str, name: &str) -> Option<String> {
    let is_whole = |part: &str| !part.is_empty() && !part.contains(':');
    (is_whole(namespace) && is_whole(name))
        .then(|| format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"))
}

fn total_len(texts: &[String]) -> usize {
    texts.iter().map(|text| text.len() + TEXT_LEN).sum()
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
    fn callers_with_credentials_are_in_system_authenticated() {
        let rows = [
            (user("a", &["g"]), user("a", &["g", AUTHENTICATED])),
            (user("a", &[AUTHENTICATED]), user("a", &[AUTHENTICATED])),
            (user("a", &[UNAUTHENTICATED]), user("a", &[UNAUTHENTICATED])),
            (User::anonymous(), User::anonymous()),
        ];
        for (user, expected) in rows {
            assert_eq!(user.authenticated(), expected);
        }
    }

    #[test]
    fn a_principal_is_its_user_without_what_tells_tokens_apart() {
        let bound = |extra: &[&str]| {
            let extra = extra.iter().map(|key| {
                let key = format!("authentication.kubernetes.io/{key}");
                (key, vec!["x".to_owned()])
            });
            Arc::new(User {
                uid: "7".to_owned(),
                extra: extra.collect(),
                ..user("a", &["g"])
            })
        };
        let keys = [
            "pod-name",
            "pod-uid",
            "node-name",
            "node-uid",
            "credential-id",
        ];
        assert_eq!(bound(&keys).principal(), bound(&[]));
        for key in keys {
            assert_eq!(bound(&[key]).principal(), bound(&[]), "{key}");
        }
        // Anything else may matter to an authorizer.
        let other = bound(&["pod-name", "issued-credential-id"]);
        assert_eq!(other.principal(), bound(&["issued-credential-id"]));
        let plain = bound(&[]);
        assert!(Arc::ptr_eq(&plain.principal(), &plain));
        assert_eq!(bound(&["pod-uid"]).pod_uid(), Some("x"));
        assert_eq!(plain.pod_uid(), None);
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
        for (namespace, name) in [("a", "b"), ("", "b"), ("a", ""), ("a:b", "c"), ("a", "b:c")] {
            let built = service_account_user(namespace, name);
            let read = built.map(|built| user(&built, &[]));
            let read = read.as_ref().and_then(User::service_account);
            let is_whole = (namespace, name) == ("a", "b");
            assert_eq!(read, is_whole.then_some((namespace, name)));
        }
    }
}
