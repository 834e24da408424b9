//! Who sends a request: the first credential that is good counts; without any the caller is anonymous.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::Auth;
use crate::auth::user::User;

/// No credential is good, or one is needed.
#[derive(Debug)]
pub(super) struct Unauthenticated;

impl Auth {
    /// The user who sends these headers.
    pub(super) fn authenticate(&self, headers: &HeaderMap) -> Result<User, Unauthenticated> {
        let own = &self.options.audiences;
        match bearer_token(headers) {
            Some(token) => match self.tokens().user(&token, own, own) {
                Some((user, _)) => Ok(user),
                // Who sends a bad credential is not anonymous.
                None => Err(Unauthenticated),
            },
            None if self.options.anonymous => Ok(User::anonymous()),
            None => Err(Unauthenticated),
        }
    }
}

/// The bearer token, read as kube-apiserver does: of the first `Authorization` header, with any case of the scheme; a further
/// word behind the token is ignored, and a token that is empty is none. Bytes that are no text make a token that nobody has.
fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?;
    let value = String::from_utf8_lossy(value.as_bytes());
    let mut words = value.trim().splitn(3, ' ');
    let is_bearer = words.next()?.eq_ignore_ascii_case("bearer");
    let token = words.next()?;
    (is_bearer && !token.is_empty()).then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn bearer_tokens_are_read_as_kube_apiserver_reads_them() {
        let rows: [(&[&[u8]], Option<&str>); 12] = [
            (&[b"Bearer a"], Some("a")),
            (&[b"bEARER a"], Some("a")),
            (&[b"  Bearer a  "], Some("a")),
            (&[b"Bearer a b"], Some("a")),
            (&[b"Bearer a", b"Bearer b"], Some("a")),
            (&[b"Bearer"], None),
            (&[b"Bearer "], None),
            (&[b"Bearer  a"], None),
            (&[b"Bearer\ta"], None),
            (&[b"Basic a"], None),
            (&[b"a"], None),
            (&[b""], None),
        ];
        for (values, expected) in rows {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
            }
            assert_eq!(bearer_token(&headers).as_deref(), expected, "{values:?}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }
}
