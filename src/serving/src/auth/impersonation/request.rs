//! The impersonation that a request asks for, and the rights that it needs: one right for each part of the user, which is the API
//! server's original mode. Constrained impersonation is not evaluated here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::header::{HeaderMap, HeaderValue};

use super::{EXTRA_PREFIX, GROUP, UID, USER};
use crate::auth::access::{Access, ResourceAccess};
use crate::auth::extra_key;
use crate::auth::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use crate::resource::names::{is_dns_label, is_dns_subdomain};

/// Maximum number of parts of one request. Bounded because each part costs a review upstream.
pub const PARTS_MAX: usize = 64;

/// A request to act as another user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonationRequest {
    /// The user as whom the request acts if all parts are allowed.
    pub user: User,
    /// The accesses that the impersonator needs, in the API server's order; at most [`PARTS_MAX`].
    pub parts: Vec<Access>,
}

/// Why impersonation headers are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationError {
    /// There are groups, a uid or extra attributes, but no user. The API server responds with 400.
    #[error("{message}")]
    WithoutUser {
        /// The API server's message for this error.
        message: String,
    },
    /// A header is not UTF-8. The API server would accept the bytes, but no user has such a name.
    #[error("an impersonation header is not UTF-8")]
    NotText,
    /// There are more than [`PARTS_MAX`] parts.
    #[error("a request may impersonate no more than {PARTS_MAX} names, groups and attributes")]
    TooManyParts,
}

impl ImpersonationRequest {
    /// The impersonation that the headers ask for; `None` if they ask for none.
    ///
    /// # Errors
    /// [`ImpersonationError`] if the headers are invalid.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, ImpersonationError> {
        let requested = requested(headers)?;
        if requested.name.is_empty() {
            let is_empty = requested.uid.is_empty()
                && requested.groups.is_empty()
                && !headers
                    .keys()
                    .any(|name| name.as_str().starts_with(EXTRA_PREFIX));
            return match is_empty {
                true => Ok(None),
                false => Err(without_user(&requested)),
            };
        }
        let parts = parts(&requested)?;
        let user = complete(requested);
        Ok(Some(Self { user, parts }))
    }
}

/// The user exactly as in the headers. The name is empty if the headers contain none.
fn requested(headers: &HeaderMap) -> Result<User, ImpersonationError> {
    let first = |name| headers.get(name).map_or(Ok(String::new()), text);
    let (name, uid) = (first(USER)?, first(UID)?);
    let groups = headers.get_all(GROUP).iter().map(text);
    let groups = groups.collect::<Result<Vec<_>, _>>()?;
    let mut extra = BTreeMap::<String, Vec<String>>::new();
    for (header, value) in headers {
        if let Some(key) = header.as_str().strip_prefix(EXTRA_PREFIX) {
            let key = extra_key::decode(key).ok_or(ImpersonationError::NotText)?;
            extra.entry(key).or_default().push(text(value)?);
        }
    }
    Ok(User {
        name,
        uid,
        groups,
        extra,
    })
}

fn text(value: &HeaderValue) -> Result<String, ImpersonationError> {
    std::str::from_utf8(value.as_bytes())
        .map(str::to_owned)
        .map_err(|_| ImpersonationError::NotText)
}

/// The rights that impersonating this user needs, in the API server's order.
fn parts(requested: &User) -> Result<Vec<Access>, ImpersonationError> {
    let name_and_uid = 1 + usize::from(!requested.uid.is_empty());
    let values = requested.extra.values().map(Vec::len).sum::<usize>();
    if name_and_uid + requested.groups.len() + values > PARTS_MAX {
        return Err(ImpersonationError::TooManyParts);
    }
    let mut parts = vec![match service_account(&requested.name) {
        Some((namespace, name)) => Access::Resource(ResourceAccess {
            namespace: namespace.to_owned(),
            ..part("", "serviceaccounts", name)
        }),
        None => Access::Resource(part("", "users", &requested.name)),
    }];
    if !requested.uid.is_empty() {
        let uid = part(AUTHENTICATION, "uids", &requested.uid);
        parts.push(Access::Resource(uid));
    }
    for group in &requested.groups {
        parts.push(Access::Resource(part("", "groups", group)));
    }
    for (key, values) in &requested.extra {
        for value in values {
            parts.push(Access::Resource(ResourceAccess {
                subresource: key.clone(),
                ..part(AUTHENTICATION, "userextras", value)
            }));
        }
    }
    Ok(parts)
}

fn part(group: &str, resource: &str, name: &str) -> ResourceAccess {
    ResourceAccess {
        verb: "impersonate".to_owned(),
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..ResourceAccess::default()
    }
}

/// Adds the groups that the API server adds to an impersonated user.
fn complete(mut user: User) -> User {
    if let Some((namespace, _name)) = service_account(&user.name)
        && user.groups.is_empty()
    {
        let of_namespace = format!("system:serviceaccounts:{namespace}");
        user.groups = vec!["system:serviceaccounts".to_owned(), of_namespace];
    }
    let added = match user.name.as_str() {
        ANONYMOUS => UNAUTHENTICATED,
        _ if user.is_in(UNAUTHENTICATED) => return user,
        _ => AUTHENTICATED,
    };
    if !user.is_in(added) {
        user.groups.push(added.to_owned());
    }
    user
}

/// Namespace and name of a service account. Impersonating a service account needs another right than impersonating a user, so the syntax
/// of both parts is checked: a name that no service account can have belongs to a user.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    let is_valid = is_dns_label(namespace) && is_dns_subdomain(name);
    is_valid.then_some((namespace, name))
}

/// The API server's error for headers without a user name: it prints the requested user with Go's `%#v`.
fn without_user(requested: &User) -> ImpersonationError {
    let groups = match requested.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => string_slice(groups),
    };
    let mut extra = String::from("map[string][]string");
    if requested.extra.is_empty() {
        extra.push_str("(nil)");
    } else {
        let entries: Vec<_> = requested
            .extra
            .iter()
            .map(|(key, values)| quote(key) + ":" + &string_slice(values))
            .collect();
        extra.push_str(&format!("{{{}}}", entries.join(", ")));
    }
    let message = format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:{groups}, Extra:{extra}}} without impersonating a user name",
        quote(&requested.uid)
    );
    ImpersonationError::WithoutUser { message }
}

/// The strings as Go prints a `[]string` with `%#v`.
fn string_slice(texts: &[String]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| quote(text)).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}

/// Quotes a string as Go's `%q` does, for the characters that headers may contain. Others occur only in percent-encoded keys of extra
/// attributes, where the text may differ from Go's.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_ascii_control() => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

const AUTHENTICATION: &str = "authentication.k8s.io";

#[cfg(test)]
mod tests;
