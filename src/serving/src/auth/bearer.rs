//! Reads the bearer tokens of a request exactly as the API server reads them. Validating a token is the token cache's task.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use http::header::{
    AUTHORIZATION, CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use serde::Deserialize;

use super::caller::BearerToken;

/// The token of a request, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenHeader {
    /// The request has no token.
    Absent,
    /// The request has something in place of a token that cannot be one.
    Invalid,
    /// A well-formed token, which may be valid or not.
    Token(BearerToken),
}

/// The token of the `Authorization` header. Another scheme, or a scheme without a token, is no credential. Only the first header is
/// read, and of its words only the first two, the scheme and the token.
#[must_use]
pub fn authorization(headers: &HeaderMap) -> TokenHeader {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return TokenHeader::Absent;
    };
    let Ok(text) = std::str::from_utf8(value.as_bytes()) else {
        return non_text(value.as_bytes());
    };
    let mut words = text.trim().splitn(3, ' ');
    let scheme = words.next().unwrap_or_default();
    let secret = words.next().unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("bearer") || secret.is_empty() {
        return TokenHeader::Absent;
    }
    BearerToken::new(secret).map_or(TokenHeader::Invalid, TokenHeader::Token)
}

/// The result for a header that is not UTF-8. Such a token is never valid, but a request that has one is not anonymous either.
fn non_text(value: &[u8]) -> TokenHeader {
    let scheme = value.trim_ascii_start().split(|&byte| byte == b' ').next();
    if scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer")) {
        TokenHeader::Invalid
    } else {
        TokenHeader::Absent
    }
}

/// The token among the subprotocols that a WebSocket client offers. The client must offer another subprotocol as well, because the
/// server must not select the one with the token.
#[must_use]
pub fn websocket(headers: &HeaderMap) -> TokenHeader {
    if !is_websocket(headers) {
        return TokenHeader::Absent;
    }
    let mut encoded = None;
    let mut has_other = false;
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        for protocol in value.as_bytes().split(|&byte| byte == b',') {
            let Some(token) = protocol.trim_ascii().strip_prefix(PROTOCOL_PREFIX) else {
                has_other = true;
                continue;
            };
            if encoded.replace(token).is_some() {
                return TokenHeader::Invalid;
            }
        }
    }
    let Some(encoded) = encoded else {
        return TokenHeader::Absent;
    };
    let decoded = BASE64.decode(encoded).ok().map(String::from_utf8);
    match decoded {
        Some(Ok(secret)) if secret.is_empty() => TokenHeader::Absent,
        Some(Ok(secret)) if has_other => {
            BearerToken::new(&secret).map_or(TokenHeader::Invalid, TokenHeader::Token)
        }
        Some(Ok(_) | Err(_)) | None => TokenHeader::Invalid,
    }
}

fn is_websocket(headers: &HeaderMap) -> bool {
    headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && headers.get_all(CONNECTION).iter().any(names_upgrade)
}

fn names_upgrade(connection: &HeaderValue) -> bool {
    connection
        .as_bytes()
        .windows(UPGRADE_WORD.len())
        .any(|window| window.eq_ignore_ascii_case(UPGRADE_WORD))
}

/// When a token expires, if it is a JWT with the claim `exp`. The signature is not verified here, so this time may only shorten how long
/// a reviewed token is trusted. No other claim is read.
#[must_use]
pub fn expiry(token: &BearerToken) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Claims {
        exp: Option<f64>,
    }
    let mut parts = token.secret().split('.');
    let (_header, payload, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || payload.len() > PAYLOAD_LEN_MAX {
        return None;
    }
    let payload = BASE64.decode(payload).ok()?;
    let seconds = serde_json::from_slice::<Claims>(&payload).ok()?.exp?;
    // A time before 1970 counts as 1970, which has expired. A time that the clock cannot represent counts as no expiry.
    let since_epoch = Duration::try_from_secs_f64(seconds.max(0.0)).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since_epoch)
}

const PROTOCOL_PREFIX: &[u8] = b"base64url.bearer.authorization.k8s.io.";

const UPGRADE_WORD: &[u8] = b"upgrade";

/// Maximum length of the payload in bytes; no server accepts a longer token.
const PAYLOAD_LEN_MAX: usize = 64 << 10;

/// Base64url without padding. Like Go, it ignores unused bits of the last character.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

#[cfg(test)]
mod tests;
