//! What a request asks for that impersonates somebody, in the API server's legacy mode: one right for each part of the user.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::header::{HeaderMap, HeaderValue};

use super::{EXTRA_PREFIX, GROUP, UID, USER};
use crate::auth::access::{Access, ResourceAccess};
use crate::auth::extra_key;
use crate::auth::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

/// The wish to act as another user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonationRequest {
    /// As whom the request acts if all of it is allowed.
    pub user: User,
    /// What the impersonator must be allowed to do, in the API server's order; at most [`PARTS_MAX`].
    pub parts: Vec<Access>,
}

/// Headers that impersonate nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationError {
    /// There are groups, a uid or extra attributes, but no user; in the API server's words, which answers with 400.
    #[error("{message}")]
    WithoutUser {
        /// The message of the answer.
        message: String,
    },
    /// The API server would take bytes that are not text; nobody is called so.
    #[error("an impersonation header is not UTF-8")]
    NotText,
    /// Upstream is asked for each part, so there is a limit.
    #[error("a request may impersonate no more than {PARTS_MAX} names, groups and attributes")]
    TooManyParts,
}

impl ImpersonationRequest {
    /// What the headers ask for; `None` if they impersonate nobody.
    ///
    /// # Errors
    /// [`ImpersonationError`].
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, ImpersonationError> {
        let wanted = wanted(headers)?;
        if wanted.name.is_empty() {
            let is_empty = wanted.uid.is_empty()
                && wanted.groups.is_empty()
                && !headers
                    .keys()
                    .any(|name| name.as_str().starts_with(EXTRA_PREFIX));
            return match is_empty {
                true => Ok(None),
                false => Err(without_user(&wanted)),
            };
        }
        let parts = parts(&wanted)?;
        let user = complete(wanted);
        Ok(Some(Self { user, parts }))
    }
}

/// The user as the headers have it.
fn wanted(headers: &HeaderMap) -> Result<User, ImpersonationError> {
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
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned)
        .map_err(|_| ImpersonationError::NotText)
}

fn parts(wanted: &User) -> Result<Vec<Access>, ImpersonationError> {
    let values = wanted.extra.values().map(Vec::len).sum::<usize>();
    if wanted.groups.len().saturating_add(values) + 2 > PARTS_MAX {
        return Err(ImpersonationError::TooManyParts);
    }
    let mut parts = vec![match service_account(&wanted.name) {
        Some((namespace, name)) => Access::Resource(ResourceAccess {
            namespace: namespace.to_owned(),
            ..part("", "serviceaccounts", name)
        }),
        None => Access::Resource(part("", "users", &wanted.name)),
    }];
    if !wanted.uid.is_empty() {
        let uid = part(AUTHENTICATION, "uids", &wanted.uid);
        parts.push(Access::Resource(uid));
    }
    for group in &wanted.groups {
        parts.push(Access::Resource(part("", "groups", group)));
    }
    for (key, values) in &wanted.extra {
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

/// With the groups that the API server adds.
fn complete(mut user: User) -> User {
    if let Some((namespace, _name)) = service_account(&user.name)
        && user.groups.is_empty()
    {
        let own = format!("system:serviceaccounts:{namespace}");
        user.groups = vec!["system:serviceaccounts".to_owned(), own];
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

/// Namespace and name of a service account. Another right is needed for it than for a user who is called alike, so names that no
/// service account can have are users.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let rest = name.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = rest.split_once(':')?;
    let is_label = |text: &str| {
        let mut bytes = text.bytes();
        bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && !text.is_empty()
            && !text.starts_with('-')
            && !text.ends_with('-')
    };
    let is_whole = namespace.len() <= 63
        && is_label(namespace)
        && name.len() <= 253
        && name.split('.').all(is_label);
    is_whole.then_some((namespace, name))
}

fn without_user(wanted: &User) -> ImpersonationError {
    let groups = match wanted.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => strings(groups),
    };
    let mut extra = String::from("map[string][]string");
    if wanted.extra.is_empty() {
        extra.push_str("(nil)");
    } else {
        let entry = |(key, values): (&String, &Vec<String>)| quote(key) + ":" + &strings(values);
        let entries: Vec<_> = wanted.extra.iter().map(entry).collect();
        extra.push_str(&format!("{{{}}}", entries.join(", ")));
    }
    let message = format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:{groups}, Extra:{extra}}} without impersonating a user name",
        quote(&wanted.uid)
    );
    ImpersonationError::WithoutUser { message }
}

fn strings(texts: &[String]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| quote(text)).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}

/// As Go quotes strings.
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

/// Questions upstream for one request. Nobody has so many groups by hand.
pub const PARTS_MAX: usize = 64;

#[cfg(test)]
mod tests;
