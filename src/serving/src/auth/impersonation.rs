//! Impersonation headers: reads those of a request, and writes those by which the gateway acts as a user. The guard decides whether a
//! caller may impersonate.

mod request;

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use parking_lot::Mutex;

use super::extra_key;
use super::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

pub use request::{ImpersonationError, ImpersonationRequest, PARTS_MAX};

/// `Impersonate-User`, the name of the impersonated user.
pub const USER: HeaderName = HeaderName::from_static("impersonate-user");
/// `Impersonate-Group`, one header for each group.
pub const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
/// `Impersonate-Uid`, the uid of the impersonated user.
pub const UID: HeaderName = HeaderName::from_static("impersonate-uid");
/// `Impersonate-Extra-`, followed by a key; one header for each value.
pub const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Prefix of a node's user name.
const NODE_PREFIX: &str = "system:node:";

/// The group of all nodes.
const NODES: &str = "system:nodes";

/// The extra attribute that names a caller's certificate.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Prefix of all impersonation headers. A newer API server may have some that are not listed here.
const PREFIX: &str = "impersonate-";

/// A user who cannot be named exactly in impersonation headers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the user's {part} cannot be sent in a header")]
pub struct UnsendableUser {
    /// The part that does not fit into a header: `name`, `uid`, `group`, `extra key` or `extra value`.
    pub part: &'static str,
}

/// Whether a header is an impersonation header.
#[must_use]
pub fn is_header(name: &HeaderName) -> bool {
    name.as_str().starts_with(PREFIX)
}

/// Whether a request has any impersonation header. `HeaderMap` holds names in lower case, however they were spelled on the wire.
#[must_use]
pub fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(is_header)
}

/// The impersonation headers among these headers.
#[must_use]
pub fn only(headers: &HeaderMap) -> HeaderMap {
    let mut impersonation = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_header(name)) {
        impersonation.append(name, value.clone());
    }
    impersonation
}

/// The headers that impersonate exactly this user.
///
/// # Errors
/// [`UnsendableUser`] if headers cannot carry a part of it unchanged, so that the API server would see another user.
pub fn headers(user: &User) -> Result<HeaderMap, UnsendableUser> {
    let mut headers = HeaderMap::new();
    if user.name.is_empty() {
        return Err(UnsendableUser { part: "name" });
    }
    put(&mut headers, USER, &user.name, "name")?;
    if !user.uid.is_empty() {
        put(&mut headers, UID, &user.uid, "uid")?;
    }
    for group in user.groups.iter().filter(|group| !is_implied(user, group)) {
        put(&mut headers, GROUP, group, "group")?;
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA_PREFIX}{}", extra_key::encode(key));
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| UnsendableUser { part: "extra key" })?;
        for value in values {
            put(&mut headers, name.clone(), value, "extra value")?;
        }
    }
    Ok(headers)
}

/// Writes the headers by which the gateway acts as users. Clones share what is known of its right to do so.
#[derive(Clone, Debug, Default)]
pub struct Impersonator(Arc<Mutex<NodeForm>>);

/// How upstream lets the gateway name a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeForm {
    /// With all that is known of it, by the right `impersonate`.
    #[default]
    Whole,
    /// By its name alone, to which upstream adds the group of nodes: constrained impersonation (Kubernetes 1.36).
    Name,
}

impl Impersonator {
    /// Sets how nodes are named from now on; returns whether that is news.
    pub fn set_node_form(&self, form: NodeForm) -> bool {
        std::mem::replace(&mut *self.0.lock(), form) != form
    }

    /// The headers that impersonate this user.
    ///
    /// # Errors
    /// As of [`headers`].
    pub fn headers(&self, user: &User) -> Result<HeaderMap, UnsendableUser> {
        if *self.0.lock() == NodeForm::Whole || !is_name_enough(user) {
            return headers(user);
        }
        let mut headers = HeaderMap::new();
        put(&mut headers, USER, &user.name, "name")?;
        Ok(headers)
    }
}

/// Whether upstream makes the same user of the name, except for the key of its certificate, which decides nothing.
fn is_name_enough(user: &User) -> bool {
    let is_node = user
        .name
        .strip_prefix(NODE_PREFIX)
        .is_some_and(|name| !name.is_empty());
    is_node
        && user.is_in(NODES)
        && user.uid.is_empty()
        && user
            .groups
            .iter()
            .all(|group| group == NODES || group == AUTHENTICATED)
        && user.extra.keys().all(|key| key == CREDENTIAL_ID)
}

/// Whether the API server adds this group itself. It must not be sent then, because that needs the right to impersonate the group.
fn is_implied(user: &User, group: &str) -> bool {
    if user.name == ANONYMOUS {
        return group == UNAUTHENTICATED;
    }
    // If no group is sent, the API server gives service accounts and nodes their default groups, so this one is sent.
    let has_no_other = user.groups.iter().all(|group| group == AUTHENTICATED);
    let has_defaults = user.service_account().is_some() || user.name.starts_with(NODE_PREFIX);
    let is_needed = has_no_other && has_defaults;
    group == AUTHENTICATED && !user.is_in(UNAUTHENTICATED) && !is_needed
}

fn put(
    headers: &mut HeaderMap,
    name: HeaderName,
    value: &str,
    part: &'static str,
) -> Result<(), UnsendableUser> {
    // HTTP/1.1 strips white space at both ends, and " admin" must not become "admin".
    if value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']) {
        return Err(UnsendableUser { part });
    }
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| UnsendableUser { part })?;
    headers
        .try_append(name, value)
        .map_err(|_| UnsendableUser { part })?;
    Ok(())
}

#[cfg(test)]
mod tests;
