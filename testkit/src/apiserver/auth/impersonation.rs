//! Impersonation by the verb `impersonate`, which all versions of kube-apiserver know. The constrained modes of 1.36 are left out.

use http::HeaderMap;

use super::certificates::user_in_headers;
use super::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use super::{Access, Auth, ResourceAccess, denied};
use crate::apiserver::status::Status;

const AUTHENTICATION: &str = "authentication.k8s.io";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

impl Auth {
    /// The user that a request acts as; `None` without impersonation.
    ///
    /// # Errors
    /// 400 for headers without a user name, 403.
    pub(super) fn impersonated(
        &self,
        sender: &User,
        headers: &HeaderMap,
    ) -> Result<Option<User>, Status> {
        let mut user = user_in_headers(headers, "impersonate-");
        if user.name.is_empty() {
            if user == User::default() {
                return Ok(None);
            }
            let user = go_struct(&user);
            return Err(Status::bad_request(format!(
                "requested {user} without impersonating a user name"
            )));
        }
        let service_account = user.service_account();
        let (namespace, name) = service_account.unwrap_or(("", &user.name));
        let resource = match service_account {
            Some(_) => "serviceaccounts",
            None => "users",
        };
        self.check(sender, &part("", resource, namespace, name))?;
        if !user.uid.is_empty() {
            self.check(sender, &part(AUTHENTICATION, "uids", "", &user.uid))?;
        }
        for group in &user.groups {
            self.check(sender, &part("", "groups", "", group))?;
        }
        for (key, values) in &user.extra {
            for value in values {
                let mut access = part(AUTHENTICATION, "userextras", "", value);
                access.subresource.clone_from(key);
                self.check(sender, &access)?;
            }
        }
        if service_account.is_some() && user.groups.is_empty() {
            let own = format!("{SERVICE_ACCOUNTS}:{namespace}");
            user.groups = vec![SERVICE_ACCOUNTS.to_owned(), own];
        }
        let implied = match user.name.as_str() {
            ANONYMOUS => UNAUTHENTICATED,
            _ => AUTHENTICATED,
        };
        if !user.is_in(UNAUTHENTICATED) && !user.is_in(implied) {
            user.groups.push(implied.to_owned());
        }
        Ok(Some(user))
    }

    fn check(&self, sender: &User, access: &ResourceAccess) -> Result<(), Status> {
        let access = Access::Resource(access.clone());
        let decision = self.authorize(sender, &access);
        if decision.is_allowed {
            return Ok(());
        }
        Err(denied(sender, &access, &decision.reason))
    }
}

/// A part of a user that the sender needs the right to impersonate.
fn part(group: &str, resource: &str, namespace: &str, name: &str) -> ResourceAccess {
    ResourceAccess {
        verb: "impersonate".to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..ResourceAccess::default()
    }
}

/// A user as Go's `%#v` writes the struct.
fn go_struct(user: &User) -> String {
    let texts = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
        format!("[]string{{{}}}", texts.join(", "))
    };
    let groups = match user.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => texts(groups),
    };
    let extra = user.extra.iter();
    let extra = extra.map(|(key, values)| format!("{key:?}:{}", texts(values)));
    let extra = match extra.collect::<Vec<_>>().as_slice() {
        [] => "(nil)".to_owned(),
        extra => format!("{{{}}}", extra.join(", ")),
    };
    let User { name, uid, .. } = user;
    format!(
        "&user.DefaultInfo{{Name:{name:?}, UID:{uid:?}, Groups:{groups}, Extra:map[string][]string{extra}}}"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;
    use crate::apiserver::auth::AuthOptions;
    use crate::apiserver::kinds::Catalogue;
    use crate::apiserver::store::{Store, Write};

    const RBAC: &str = "rbac.authorization.k8s.io";

    /// An authorizer by which `eve` may impersonate users, service accounts, the group `dev` and the extra field `team`.
    fn auth() -> Auth {
        let store = Store::new(Arc::new(Catalogue::new(&[])));
        let auth = Auth::new(Some(AuthOptions::default()), &store).unwrap();
        let rule = |group: &str, resources: &[&str], names: &[&str]| json!({"verbs": ["impersonate"], "apiGroups": [group], "resources": resources, "resourceNames": names});
        let rules = [
            rule("", &["users", "serviceaccounts"], &[]),
            rule("", &["groups"], &["dev"]),
            rule(AUTHENTICATION, &["userextras/team"], &[]),
        ];
        let metadata = json!({"name": "eve"});
        let role = json!({"metadata": metadata, "rules": rules});
        let binding = json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "eve"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "eve"}],
        });
        for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
            let index = store.catalogue().index_of_plural(plural).unwrap();
            store.write(Write::create(index, "", object)).unwrap();
        }
        auth
    }

    fn impersonate(
        auth: &Auth,
        sender: &str,
        rows: &[(&'static str, &str)],
    ) -> Result<Option<User>, u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            let name = HeaderName::from_static(name);
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let sender = User {
            name: sender.to_owned(),
            ..User::default()
        };
        let user = auth.impersonated(&sender, &headers);
        user.map_err(|status| status.code)
    }

    #[test]
    fn each_part_of_a_user_needs_the_right_to_impersonate_it() {
        let auth = auth();
        let (user, group) = (("impersonate-user", "bob"), ("impersonate-group", "dev"));
        assert_eq!(impersonate(&auth, "eve", &[]), Ok(None));
        assert_eq!(impersonate(&auth, "eve", &[group]), Err(400));
        assert_eq!(impersonate(&auth, "ann", &[user]), Err(403));
        for refused in [
            ("impersonate-group", "ops"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-other", "x"),
        ] {
            let rows = [user, group, refused];
            assert_eq!(impersonate(&auth, "eve", &rows), Err(403), "{refused:?}");
        }
        let rows = [user, group, ("impersonate-extra-team", "x")];
        let bob = impersonate(&auth, "eve", &rows).unwrap().unwrap();
        assert_eq!(bob.groups, ["dev", AUTHENTICATED]);
        assert_eq!(bob.extra["team"], ["x"]);
    }

    #[test]
    fn a_service_account_has_its_groups_unless_others_are_named() {
        let auth = auth();
        let bot = ("impersonate-user", "system:serviceaccount:ns:bot");
        let user = impersonate(&auth, "eve", &[bot]).unwrap().unwrap();
        let own = "system:serviceaccounts:ns";
        assert_eq!(user.groups, [SERVICE_ACCOUNTS, own, AUTHENTICATED]);
        let rows = [bot, ("impersonate-group", "dev")];
        let user = impersonate(&auth, "eve", &rows).unwrap().unwrap();
        assert_eq!(user.groups, ["dev", AUTHENTICATED]);
    }
}
