//! Impersonation like in kube-apiserver 1.36: first the constrained modes, which need a permission for the request itself, then
//! the legacy mode. The gateway's parser of the headers is not used, so that tests compare two independent implementations.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::Auth;
use super::attributes::denied;
use super::extra_key::unescaped;
use super::impersonation_mode::ImpersonationMode;
use crate::auth::access::{Access, ResourceAccess};
use crate::auth::rbac::RbacDecision;
use crate::auth::user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};
use crate::protocol::status::Status;
use crate::resource::names::{is_dns_label, is_dns_subdomain};
use crate::selector::quoted;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

/// Extra field with the node that a service account's token is bound to.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODES: &str = "system:nodes";
/// With at least this many groups or extra values, permission for all of them (`*`) is checked first.
const WILDCARD_COUNT_MIN: usize = 4;

/// The modes in the order in which they are tried.
const MODES: [ImpersonationMode; 5] = [
    ImpersonationMode::AssociatedNode,
    ImpersonationMode::ArbitraryNode,
    ImpersonationMode::ServiceAccount,
    ImpersonationMode::UserInfo,
    ImpersonationMode::Legacy,
];

impl Auth {
    /// The user that a request acts as; `None` if it does not impersonate.
    ///
    /// # Errors
    /// 400 for impersonation headers without a user name, 403 for a user that the sender may not impersonate.
    pub(super) fn impersonated(
        &self,
        sender: &User,
        headers: &HeaderMap,
        request: &Access,
    ) -> Result<Option<User>, Status> {
        let Some(target) = target_user(headers)? else {
            return Ok(None);
        };
        let last = self.last_modes.of(sender);
        let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
        let mut first_refusal = None;
        for mode in last.into_iter().chain(others) {
            let attempt = ImpersonationAttempt {
                auth: self,
                sender,
                target: &target,
                mode,
            };
            if !attempt.applies() {
                continue;
            }
            match attempt.user(request) {
                Ok(user) => {
                    self.last_modes.put(sender, mode);
                    return Ok(Some(user));
                }
                Err(refusal) => first_refusal = first_refusal.or(Some(refusal)),
            }
        }
        Err(first_refusal.unwrap_or_else(|| Status::untyped("all impersonation modes failed")))
    }
}

/// The user that the headers name, unchecked; `None` without impersonation headers.
fn target_user(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name| headers.get(name).map(text).unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let values = headers.get_all(name).iter().map(text);
            extra.entry(unescaped(key)).or_default().extend(values);
        }
    }
    let user = User {
        name: first(USER),
        uid: first(UID),
        groups: headers.get_all(GROUP).iter().map(text).collect(),
        extra,
    };
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if only_name(&user) {
        return Ok(None);
    }
    let message = format!(
        "requested {} without impersonating a user name",
        go_struct(&user)
    );
    Err(Status::bad_request(message))
}

/// Formats a user like Go's `%#v` formats the struct.
fn go_struct(user: &User) -> String {
    let texts = |texts: &[String]| {
        let all: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        format!("[]string{{{}}}", all.join(", "))
    };
    let groups = match user.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => texts(groups),
    };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let entries = user.extra.iter();
        let entries = entries.map(|(key, values)| format!("{}:{}", quoted(key), texts(values)));
        let entries: Vec<String> = entries.collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}",
        quoted(&user.name),
        quoted(&user.uid)
    )
}

fn only_name(user: &User) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

/// The name of the node, if this is a node's user name.
fn node(name: &str) -> Option<&str> {
    let node = name.strip_prefix("system:node:")?;
    is_dns_subdomain(node).then_some(node)
}

/// Namespace and name of the service account, if this is a service account's user name.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    (is_dns_label(namespace) && is_dns_subdomain(name)).then_some((namespace, name))
}

/// An attempt to impersonate a user in one mode.
#[derive(Clone, Copy)]
struct ImpersonationAttempt<'a> {
    auth: &'a Auth,
    sender: &'a User,
    target: &'a User,
    mode: ImpersonationMode,
}

impl ImpersonationAttempt<'_> {
    /// Whether the mode applies to this target.
    fn applies(self) -> bool {
        let name = &self.target.name;
        match self.mode {
            ImpersonationMode::AssociatedNode => {
                let own = self.sender.extra.get(NODE_NAME).map(Vec::as_slice);
                let is_own = matches!((own, node(name)), (Some([own]), Some(node)) if own == node);
                only_name(self.target) && is_own && service_account(&self.sender.name).is_some()
            }
            ImpersonationMode::ArbitraryNode => only_name(self.target) && node(name).is_some(),
            ImpersonationMode::ServiceAccount => {
                only_name(self.target) && service_account(name).is_some()
            }
            ImpersonationMode::UserInfo => node(name).is_none() && service_account(name).is_none(),
            ImpersonationMode::Legacy => true,
        }
    }

    /// The name of a constrained mode, as it occurs in verbs; `None` for the legacy mode.
    const fn constraint(self) -> Option<&'static str> {
        match self.mode {
            ImpersonationMode::AssociatedNode => Some("associated-node"),
            ImpersonationMode::ArbitraryNode => Some("arbitrary-node"),
            ImpersonationMode::ServiceAccount => Some("serviceaccount"),
            ImpersonationMode::UserInfo => Some("user-info"),
            ImpersonationMode::Legacy => None,
        }
    }

    /// The impersonated user, if the sender may impersonate each part of it.
    fn user(self, request: &Access) -> Result<User, Status> {
        if let Some(mode) = self.constraint() {
            self.check(&on_request(mode, request))?;
        }
        let mut user = self.target.clone();
        self.check_name(&mut user)?;
        if !user.uid.is_empty() {
            self.check_part("authentication.k8s.io", "uids", "", &user.uid)?;
        }
        self.check_groups()?;
        self.check_extra()?;
        let implied = if user.name == ANONYMOUS {
            UNAUTHENTICATED
        } else {
            AUTHENTICATED
        };
        if !user.is_in(UNAUTHENTICATED) && !user.is_in(implied) {
            user.groups.push(implied.to_owned());
        }
        Ok(user)
    }

    fn check_name(self, user: &mut User) -> Result<(), Status> {
        let name = &self.target.name;
        let constrained = self.constraint().is_some();
        if let Some((namespace, name)) = service_account(name) {
            if user.groups.is_empty() {
                let all = "system:serviceaccounts".to_owned();
                user.groups = vec![all.clone(), format!("{all}:{namespace}")];
            }
            let mut part = self.part(self.group(), "serviceaccounts", "", name);
            part.namespace = namespace.to_owned();
            return self.check(&Access::Resource(part));
        }
        match node(name).filter(|_| constrained) {
            Some(node) => {
                user.groups = vec![NODES.to_owned()];
                let is_associated = self.mode == ImpersonationMode::AssociatedNode;
                let name = if is_associated { "*" } else { node };
                self.check_part(self.group(), "nodes", "", name)
            }
            None => self.check_part(self.group(), "users", "", name),
        }
    }

    fn check_groups(self) -> Result<(), Status> {
        let groups = &self.target.groups;
        if self.constraint().is_some() {
            let forbidden = |name: &str, reason: &str| {
                let part = Access::Resource(self.part(self.group(), "groups", "", name));
                Err(denied(self.sender, &part, reason))
            };
            if groups.iter().any(String::is_empty) {
                return forbidden("", "impersonating the empty string group is not allowed");
            }
            if self.target.is_in(MASTERS) {
                let reason = "impersonating the system:masters group is not allowed";
                return forbidden(MASTERS, reason);
            }
            let is_large = groups.len() >= WILDCARD_COUNT_MIN;
            if is_large && self.check_part(self.group(), "groups", "", "*").is_ok() {
                return Ok(());
            }
        }
        let mut groups = groups.iter();
        groups.try_for_each(|group| self.check_part(self.group(), "groups", "", group))
    }

    fn check_extra(self) -> Result<(), Status> {
        let (group, extra) = ("authentication.k8s.io", &self.target.extra);
        if self.constraint().is_some() {
            if let Some(reason) = extra
                .iter()
                .find_map(|(key, values)| extra_fault(key, values))
            {
                let part = Access::Resource(self.part(group, "userextras", "", ""));
                return Err(denied(self.sender, &part, &reason));
            }
            let is_large = extra.values().map(Vec::len).sum::<usize>() >= WILDCARD_COUNT_MIN;
            if is_large && self.check_part(group, "userextras", "*", "*").is_ok() {
                return Ok(());
            }
        }
        let values = |(key, values)| std::iter::repeat(key).zip(values);
        let mut values = extra.iter().flat_map(values);
        values.try_for_each(|(key, value): (&String, &String)| {
            self.check_part(group, "userextras", key, value)
        })
    }

    /// The API group of users, groups, nodes and service accounts: the core group in the legacy mode.
    const fn group(self) -> &'static str {
        match self.mode {
            ImpersonationMode::Legacy => "",
            ImpersonationMode::AssociatedNode
            | ImpersonationMode::ArbitraryNode
            | ImpersonationMode::ServiceAccount
            | ImpersonationMode::UserInfo => "authentication.k8s.io",
        }
    }

    fn part(self, group: &str, resource: &str, subresource: &str, name: &str) -> ResourceAccess {
        let mode = self.constraint();
        let verb = mode.map_or_else(
            || "impersonate".to_owned(),
            |mode| format!("impersonate:{mode}"),
        );
        ResourceAccess {
            verb,
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            ..ResourceAccess::default()
        }
    }

    fn check_part(
        self,
        group: &str,
        resource: &str,
        subresource: &str,
        name: &str,
    ) -> Result<(), Status> {
        self.check(&Access::Resource(self.part(
            group,
            resource,
            subresource,
            name,
        )))
    }

    fn check(self, access: &Access) -> Result<(), Status> {
        match self.auth.authorize(self.sender, access) {
            RbacDecision::Allowed(_) => Ok(()),
            RbacDecision::NotAllowed(reason) => Err(denied(self.sender, access, &reason)),
        }
    }
}

/// The permission to make this request while impersonating in a mode: `impersonate-on:MODE:VERB`.
fn on_request(mode: &str, request: &Access) -> Access {
    let mut access = request.clone();
    let (Access::Resource(ResourceAccess { verb, .. }) | Access::Path { verb, .. }) = &mut access;
    *verb = format!("impersonate-on:{mode}:{verb}");
    access
}

/// Why the constrained modes refuse an extra field; `None` if they accept it.
fn extra_fault(key: &str, values: &[String]) -> Option<String> {
    let is_path = |key: &str| {
        let parts = key.split_once('/');
        parts.is_some_and(|(host, path)| !path.is_empty() && is_dns_subdomain(host))
    };
    let reason = if key.is_empty() {
        "impersonating the empty string key in extra is not allowed".to_owned()
    } else if !is_path(key) {
        format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: must be a domain-prefixed path (such as \"acme.io/foo\")",
            quoted(key)
        )
    } else if key.to_lowercase() != key {
        format!(
            "impersonating a non-lowercase key in extra is not allowed: {}",
            quoted(key)
        )
    } else if values.iter().any(String::is_empty) {
        "impersonating the empty string value in extra is not allowed".to_owned()
    } else {
        return None;
    };
    Some(reason)
}
