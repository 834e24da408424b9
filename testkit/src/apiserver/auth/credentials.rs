//! Authenticates a request by its first valid credential, in kube-apiserver's order: front proxy, client certificate, bearer token.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::user::User;
use super::{Auth, Credentials};

/// What one kind of credential says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Check {
    Absent,
    Invalid,
    Valid(User),
}

impl Auth {
    /// The user of a request; `None` if its credentials are invalid, or it has none and needs some.
    pub(super) fn authenticate(
        &self,
        credentials: Credentials<'_>,
        anonymous: bool,
    ) -> Option<User> {
        let Credentials {
            headers,
            certificates,
        } = credentials;
        let proxies = self.front_proxies.as_ref();
        let authorities = self.client_authorities.as_ref();
        let checks = [
            proxies.map_or(Check::Absent, |proxies| proxies.user(certificates, headers)),
            authorities.map_or(Check::Absent, |authorities| authorities.user(certificates)),
            bearer_token(headers).map_or(Check::Absent, |token| self.token_user(&token)),
        ];
        let mut has_failed = false;
        for check in checks {
            match check {
                Check::Absent => {}
                Check::Invalid => has_failed = true,
                Check::Valid(user) => return Some(user.authenticated()),
            }
        }
        (!has_failed && anonymous).then(User::anonymous)
    }

    fn token_user(&self, token: &str) -> Check {
        let own = self.audiences();
        match self.tokens.user(token, own, own) {
            Some((user, _)) if self.has_bound(&user) => Check::Valid(user),
            Some(_) | None => Check::Invalid,
        }
    }
}

/// The token of the first `Authorization` header. Words behind it are ignored, and an empty token counts as absent.
fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let value = headers
        .get(AUTHORIZATION)
        .map_or(&b""[..], |value| value.as_bytes());
    let value = String::from_utf8_lossy(value);
    let mut words = value.trim().splitn(3, ' ');
    match (words.next(), words.next()) {
        (Some(scheme), Some(token))
            if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() =>
        {
            Some(token.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn bearer_tokens_are_read_as_kube_apiserver_reads_them() {
        for (value, expected) in [
            ("Bearer a", Some("a")),
            ("bEARER a b", Some("a")),
            ("  Bearer a  ", Some("a")),
            ("Bearer  a", None),
            ("Bearer", None),
            ("Basic a", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            assert_eq!(bearer_token(&headers).as_deref(), expected, "{value}");
        }
    }
}
