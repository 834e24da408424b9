//! Impersonation: headers by which a request acts as another user. Whether it may is decided elsewhere.

mod request;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::extra_key;
use super::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

pub use request::{ImpersonationError, ImpersonationRequest, PARTS_MAX};

/// `Impersonate-User`.
pub const USER: HeaderName = HeaderName::from_static("impersonate-user");
/// `Impersonate-Group`, one for each group.
pub const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
/// `Impersonate-Uid`.
pub const UID: HeaderName = HeaderName::from_static("impersonate-uid");
/// `Impersonate-Extra-` and a key, one for each value.
pub const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Names of nodes begin so.
const NODE_PREFIX: &str = "system:node:";

/// All of them begin so; the API server may know more of them than we do.
const PREFIX: &str = "impersonate-";

/// A user who cannot be impersonated faithfully.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the user's {part} cannot be sent in a header")]
pub struct UnsendableUser {
    /// `name`, `group` and the like.
    pub part: &'static str,
}

/// Whether a header impersonates somebody.
#[must_use]
pub fn is_header(name: &HeaderName) -> bool {
    name.as_str().starts_with(PREFIX)
}

/// Those of a request's headers that impersonate somebody.
#[must_use]
pub fn only(headers: &HeaderMap) -> HeaderMap {
    let mut impersonation = HeaderMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| is_header(name)) {
        impersonation.append(name, value.clone());
    }
    impersonation
}

/// The headers with which the API server takes the sender for this user, if the sender may impersonate it.
///
/// # Errors
/// [`UnsendableUser`] if it would take the sender for another one.
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
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.map_err(|_| UnsendableUser { part: "extra key" })?;
        for value in values {
            put(&mut headers, name.clone(), value, "extra value")?;
        }
    }
    Ok(headers)
}

/// The API server adds this group by itself. To name it would need the right to impersonate it.
fn is_implied(user: &User, group: &str) -> bool {
    if user.name == ANONYMOUS {
        return group == UNAUTHENTICATED;
    }
    // Without any group named, service accounts and nodes would be given those that their kind has.
    let is_bare = user.groups.iter().all(|group| group == AUTHENTICATED);
    let is_of_a_kind = user.service_account().is_some() || user.name.starts_with(NODE_PREFIX);
    let is_named = is_bare && is_of_a_kind;
    group == AUTHENTICATED && !user.is_in(UNAUTHENTICATED) && !is_named
}

fn put(
    headers: &mut HeaderMap,
    name: HeaderName,
    value: &str,
    part: &'static str,
) -> Result<(), UnsendableUser> {
    let unsendable = |_| UnsendableUser { part };
    // HTTP/1.1 strips blanks at both ends, and " admin" must not become "admin".
    if value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']) {
        return Err(UnsendableUser { part });
    }
    let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| UnsendableUser { part })?;
    headers.try_append(name, value).map_err(unsendable)?;
    Ok(())
}

#[cfg(test)]
mod tests;
