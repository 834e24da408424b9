//! Reads the user that a front proxy names in headers. The authenticator verifies the proxy's certificate before it calls this.

use std::collections::BTreeMap;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::extra_key;
use super::user::User;
use crate::config::FrontProxySettings;

/// A header of the front proxy is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a header that names the user is not UTF-8")]
pub struct HeaderTextError;

/// The user that the headers name; `None` if they name none. The name and the uid are the value of the first configured header that is
/// not empty. Groups and extra attributes are collected from all values of all configured headers.
///
/// # Errors
/// [`HeaderTextError`] if one of these values is not UTF-8.
pub fn user(
    settings: &FrontProxySettings,
    headers: &HeaderMap,
) -> Result<Option<User>, HeaderTextError> {
    let Some(name) = first(headers, &settings.username_headers)? else {
        return Ok(None);
    };
    let uid = first(headers, &settings.uid_headers)?.unwrap_or_default();
    let mut groups = Vec::new();
    for header in &settings.group_headers {
        for value in headers.get_all(header) {
            let group = text(value)?;
            if !group.is_empty() {
                groups.push(group);
            }
        }
    }
    let mut extra = BTreeMap::<String, Vec<String>>::new();
    for prefix in &settings.extra_header_prefixes {
        for (header, value) in headers {
            if let Some(key) = header.as_str().strip_prefix(prefix.as_str()) {
                let key = extra_key::decode(key).ok_or(HeaderTextError)?;
                extra.entry(key).or_default().push(text(value)?);
            }
        }
    }
    let user = User {
        name,
        uid,
        groups,
        extra,
    };
    Ok(Some(user.authenticated()))
}

/// Whether a header is one of those in which a front proxy names the user. The gateway does not forward these headers from clients.
#[must_use]
pub fn is_header(settings: &FrontProxySettings, name: &HeaderName) -> bool {
    let named = [
        &settings.username_headers,
        &settings.uid_headers,
        &settings.group_headers,
    ];
    let mut prefixes = settings.extra_header_prefixes.iter();
    named.iter().any(|headers| headers.contains(name))
        || prefixes.any(|prefix| name.as_str().starts_with(prefix.as_str()))
}

/// The first value of the first of these headers whose first value is not empty.
fn first(headers: &HeaderMap, names: &[HeaderName]) -> Result<Option<String>, HeaderTextError> {
    for name in names {
        if let Some(value) = headers.get(name).filter(|value| !value.is_empty()) {
            return text(value).map(Some);
        }
    }
    Ok(None)
}

fn text(value: &HeaderValue) -> Result<String, HeaderTextError> {
    std::str::from_utf8(value.as_bytes())
        .map(str::to_owned)
        .map_err(|_| HeaderTextError)
}

#[cfg(test)]
mod tests;
