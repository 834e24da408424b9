//! Authenticates a request by its first valid credential. A request without credentials, or with credentials of kinds that the
//! server does not check, is anonymous.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use rustls_pki_types::CertificateDer;

use super::Auth;
use super::certificates::CredentialCheck;
use crate::auth::user::User;

/// Prefix of the WebSocket subprotocol that carries a token: browsers cannot set other headers on a WebSocket.
const WEBSOCKET_BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// All credentials are invalid, or there are none and anonymous requests are refused.
#[derive(Debug)]
pub(super) struct Unauthenticated;

/// The token that a request carries.
#[derive(Debug, PartialEq, Eq)]
enum PresentedToken {
    Nothing,
    /// A malformed token.
    Broken,
    Token(String),
}

impl Auth {
    /// Authenticates a request by its headers and its connection's certificate chain, in kube-apiserver's order: front proxy,
    /// client certificate, bearer token, WebSocket token.
    pub(super) fn authenticate(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'static>],
    ) -> Result<User, Unauthenticated> {
        let proxies = self.front_proxies.as_ref();
        let authorities = self.client_authorities.as_ref();
        let attempts: [&dyn Fn() -> CredentialCheck; 4] = [
            &|| {
                proxies.map_or(CredentialCheck::Absent, |proxies| {
                    proxies.user(chain, headers)
                })
            },
            &|| {
                authorities.map_or(CredentialCheck::Absent, |authorities| {
                    authorities.user(chain)
                })
            },
            &|| self.token_user(bearer_token(headers)),
            &|| self.token_user(websocket_token(headers)),
        ];
        let mut failed = false;
        for attempt in attempts {
            match attempt() {
                CredentialCheck::Absent => {}
                CredentialCheck::Failed => failed = true,
                CredentialCheck::Succeeded(user) => return Ok(user.authenticated()),
            }
        }
        // A request with an invalid credential is refused, not treated as anonymous.
        if failed || !self.options.anonymous {
            return Err(Unauthenticated);
        }
        Ok(User::anonymous())
    }

    fn token_user(&self, presented: PresentedToken) -> CredentialCheck {
        let token = match presented {
            PresentedToken::Nothing => return CredentialCheck::Absent,
            PresentedToken::Broken => return CredentialCheck::Failed,
            PresentedToken::Token(token) => token,
        };
        let own = &self.options.audiences;
        match self.tokens().user(&token, own, own) {
            Some((user, _)) => CredentialCheck::Succeeded(user),
            None => CredentialCheck::Failed,
        }
    }
}

/// The bearer token, parsed like kube-apiserver does: from the first `Authorization` header, whatever the case of the scheme.
/// Words after the token are ignored; an empty token counts as absent. A header that is not UTF-8 is decoded lossily, which
/// yields a token that no user has.
fn bearer_token(headers: &HeaderMap) -> PresentedToken {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return PresentedToken::Nothing;
    };
    let value = String::from_utf8_lossy(value.as_bytes());
    let mut words = value.trim().splitn(3, ' ');
    let scheme = words.next().unwrap_or_default();
    let token = words.next().unwrap_or_default();
    if token.is_empty() || !scheme.eq_ignore_ascii_case("bearer") {
        return PresentedToken::Nothing;
    }
    PresentedToken::Token(token.to_owned())
}

/// The token among a WebSocket's subprotocols. kube-apiserver requires another subprotocol beside it, which the response can
/// select.
fn websocket_token(headers: &HeaderMap) -> PresentedToken {
    let contains = |name, word: &str| {
        let values = headers.get_all(name).iter();
        let mut texts = values.filter_map(|value| value.to_str().ok());
        texts.any(|text| text.to_ascii_lowercase().contains(word))
    };
    if !contains(&CONNECTION, "upgrade") || !contains(&UPGRADE, "websocket") {
        return PresentedToken::Nothing;
    }
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let texts: Vec<String> = texts.collect();
    let all = texts.iter().flat_map(|text| text.split(',')).map(str::trim);
    let (bearers, others): (Vec<&str>, Vec<&str>) =
        all.partition(|protocol| protocol.starts_with(WEBSOCKET_BEARER));
    let [bearer] = bearers.as_slice() else {
        return if bearers.is_empty() {
            PresentedToken::Nothing
        } else {
            PresentedToken::Broken
        };
    };
    let encoded = bearer.strip_prefix(WEBSOCKET_BEARER).unwrap_or_default();
    let token = URL_SAFE_NO_PAD.decode(encoded).ok();
    match token.and_then(|token| String::from_utf8(token).ok()) {
        None => PresentedToken::Broken,
        Some(token) if token.is_empty() => PresentedToken::Nothing,
        Some(_) if others.is_empty() => PresentedToken::Broken,
        Some(token) => PresentedToken::Token(token),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(rows: &[(HeaderName, &[u8])]) -> HeaderMap {
        let rows = rows.iter();
        let rows =
            rows.map(|(name, value)| (name.clone(), HeaderValue::from_bytes(value).unwrap()));
        let mut headers = HeaderMap::new();
        rows.for_each(|(name, value)| {
            headers.append(name, value);
        });
        headers
    }

    fn token(text: &str) -> PresentedToken {
        PresentedToken::Token(text.to_owned())
    }

    #[test]
    fn bearer_tokens_are_read_as_kube_apiserver_reads_them() {
        let rows: [(&[&[u8]], PresentedToken); 13] = [
            (&[b"Bearer a"], token("a")),
            (&[b"bEARER a"], token("a")),
            (&[b"  Bearer a  "], token("a")),
            (&[b"Bearer a b"], token("a")),
            (&[b"Bearer a", b"Bearer b"], token("a")),
            (&[b"Bearer"], PresentedToken::Nothing),
            (&[b"Bearer "], PresentedToken::Nothing),
            (&[b"Bearer  a"], PresentedToken::Nothing),
            (&[b"Bearer\ta"], PresentedToken::Nothing),
            (&[b"Basic a"], PresentedToken::Nothing),
            (&[b"a"], PresentedToken::Nothing),
            (&[b""], PresentedToken::Nothing),
            (&[], PresentedToken::Nothing),
        ];
        for (values, expected) in rows {
            let rows: Vec<_> = values.iter().map(|value| (AUTHORIZATION, *value)).collect();
            assert_eq!(bearer_token(&headers(&rows)), expected, "{values:?}");
        }
    }

    #[test]
    fn websocket_tokens_are_read_as_kube_apiserver_reads_them() {
        let upgrade = [
            (CONNECTION, b"keep-alive, Upgrade".as_slice()),
            (UPGRADE, b"websocket"),
        ];
        let bearer = "base64url.bearer.authorization.k8s.io.";
        let rows = [
            (format!("{bearer}YWJj, v4.channel.k8s.io"), token("abc")),
            (format!("x,{bearer}YWJj"), token("abc")),
            (format!("{bearer}YWJj"), PresentedToken::Broken),
            (
                format!("{bearer}YWJj,{bearer}YWJj,x"),
                PresentedToken::Broken,
            ),
            (format!("{bearer}YWJj=,x"), PresentedToken::Broken),
            (format!("{bearer}_w,x"), PresentedToken::Broken),
            (format!("{bearer},x"), PresentedToken::Nothing),
            ("x".to_owned(), PresentedToken::Nothing),
        ];
        for (protocols, expected) in rows {
            let protocol = (SEC_WEBSOCKET_PROTOCOL, protocols.as_bytes());
            let sent = headers(&[upgrade[0].clone(), upgrade[1].clone(), protocol.clone()]);
            assert_eq!(websocket_token(&sent), expected, "{protocols}");
            assert_eq!(
                websocket_token(&headers(&[protocol])),
                PresentedToken::Nothing
            );
        }
    }
}
