//! The gateway's own credentials as request headers. Token files and exec plugins have been resolved before (`secrets.rs`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use kube_client::config::AuthInfo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret;

use super::{ConnectError, SendError};

/// `Authorization` and, if the kubeconfig impersonates a user, the headers for that.
pub(super) struct Credentials {
    headers: HeaderMap,
}

impl Credentials {
    pub(super) fn new(auth: &AuthInfo) -> Result<Self, ConnectError> {
        let mut headers = HeaderMap::new();
        // As in client-go, a user with a password comes before a token.
        let authorization = match (&auth.username, &auth.password, &auth.token) {
            (Some(user), Some(password), _) => {
                let pair = format!("{user}:{}", password.expose_secret());
                Some(format!("Basic {}", BASE64.encode(pair)))
            }
            (_, _, Some(token)) => Some(format!("Bearer {}", token.expose_secret())),
            (_, _, None) => None,
        };
        if let Some(text) = authorization {
            let mut value = header_value(&text, "token")?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        for (name, text) in [
            ("impersonate-user", &auth.impersonate),
            ("impersonate-uid", &auth.impersonate_uid),
        ] {
            if let Some(text) = text {
                headers.insert(name, header_value(text, name)?);
            }
        }
        for group in auth.impersonate_groups.iter().flatten() {
            let value = header_value(group, "impersonate-group")?;
            headers.append("impersonate-group", value);
        }
        for (key, values) in auth.impersonate_user_extra.iter().flatten() {
            let name = extra_header_name(key)?;
            for text in values {
                headers.append(&name, header_value(text, name.as_str())?);
            }
        }
        Ok(Self { headers })
    }

    /// Sets the headers and replaces existing values of the same names. If the kubeconfig impersonates a user, callers
    /// cannot be impersonated as well: only some of their headers would be replaced, and the request would act as neither
    /// user.
    pub(super) fn attach(&self, headers: &mut HeaderMap) -> Result<(), SendError> {
        if self.headers.keys().any(impersonates) && headers.keys().any(impersonates) {
            return Err(SendError::Credentials(NESTED.into()));
        }
        // `extend` keeps several values of one name, such as groups, and removes the older ones.
        headers.extend(self.headers.clone());
        Ok(())
    }
}

fn impersonates(name: &HeaderName) -> bool {
    name.as_str().starts_with("impersonate-")
}

const NESTED: &str = "the kubeconfig impersonates a user, so callers cannot be impersonated";

/// The error names what the value is for, and does not contain it.
pub(super) fn header_value(text: &str, what: &str) -> Result<HeaderValue, ConnectError> {
    HeaderValue::from_str(text).map_err(|_| ConnectError::Credentials {
        reason: format!(
            "the {what} contains characters that a header must not contain, such as a newline"
        ),
    })
}

/// What client-go escapes in the keys of extra attributes: bytes that no name of a header may have, and `%`.
const NOT_IN_KEYS: AsciiSet = NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

fn extra_header_name(key: &str) -> Result<HeaderName, ConnectError> {
    let name = format!(
        "impersonate-extra-{}",
        utf8_percent_encode(key, &NOT_IN_KEYS)
    );
    name.parse().map_err(|_| ConnectError::Credentials {
        reason: format!("{key:?} cannot be the key of an extra attribute"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(auth: serde_json::Value) -> Vec<(String, String)> {
        let credentials = Credentials::new(&serde_json::from_value(auth).unwrap()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("of the caller"));
        credentials.attach(&mut headers).unwrap();
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let mut found: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect();
        found.sort();
        found
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = expected.iter();
        owned
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_password_comes_before_a_token() {
        let user = json!({"username": "jane", "password": "a:b", "token": "t"});
        let expected = pairs(&[("authorization", "Basic amFuZTphOmI=")]);
        assert_eq!(headers(user), expected);
        let expected = pairs(&[("authorization", "Bearer t")]);
        assert_eq!(headers(json!({"username": "jane", "token": "t"})), expected);
    }

    #[test]
    fn the_impersonated_user_has_all_groups_and_extra_attributes() {
        let found = headers(json!({
            "token": "t",
            "as": "jane",
            "as-uid": "7",
            "as-groups": ["dev", "ops"],
            "as-user-extra": {"acme.com/Role%": ["x", "y"]},
        }));
        let expected = pairs(&[
            ("authorization", "Bearer t"),
            ("impersonate-extra-acme.com%2frole%25", "x"),
            ("impersonate-extra-acme.com%2frole%25", "y"),
            ("impersonate-group", "dev"),
            ("impersonate-group", "ops"),
            ("impersonate-uid", "7"),
            ("impersonate-user", "jane"),
        ]);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_caller_cannot_be_impersonated_by_whoever_is_impersonated() {
        let auth = serde_json::from_value(json!({"as": "jane"})).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-group", HeaderValue::from_static("admins"));
        let refused = Credentials::new(&auth).unwrap().attach(&mut headers);
        assert!(matches!(refused, Err(SendError::Credentials(_))));
    }
}
