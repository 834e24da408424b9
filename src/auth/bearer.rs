//! Bearer tokens of a request, read as the API server reads them. Whose they are is not known here.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use serde::Deserialize;

use super::caller::BearerToken;

/// What a request says of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenHeader {
    /// Nothing.
    Absent,
    /// Something that cannot be a token.
    Invalid,
    /// A token, good or bad.
    Token(BearerToken),
}

/// The token of the `Authorization` header. Other schemes, and a scheme without a token, are no credential; of several headers the
/// first counts, and of several words the second.
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

/// No token is made of bytes that are not text, but a request with one is not anonymous.
fn non_text(value: &[u8]) -> TokenHeader {
    let scheme = value.trim_ascii_start().split(|&byte| byte == b' ').next();
    if scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer")) {
        TokenHeader::Invalid
    } else {
        TokenHeader::Absent
    }
}

/// The token among the subprotocols that a WebSocket client offers. Another subprotocol must stand beside it, because this one is not
/// told back.
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
    let names_upgrade = |value: &[u8]| {
        let mut places = value.windows(UPGRADE_WORD.len());
        places.any(|word| word.eq_ignore_ascii_case(UPGRADE_WORD))
    };
    let upgrade = headers.get(UPGRADE);
    upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && headers
            .get_all(CONNECTION)
            .iter()
            .any(|value| names_upgrade(value.as_bytes()))
}

/// When a token expires, if it is a JWT and says so. Nothing else in it is believed, and this only ever makes a time shorter.
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
    // What is before 1970 has expired; what lies beyond all times does not expire.
    let since_epoch = Duration::try_from_secs_f64(seconds.max(0.0)).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since_epoch)
}

const PROTOCOL_PREFIX: &[u8] = b"base64url.bearer.authorization.k8s.io.";

const UPGRADE_WORD: &[u8] = b"upgrade";

/// Of a token that any server would take.
const PAYLOAD_LEN_MAX: usize = 64 << 10;

/// Unpadded, and as lenient with the last character's unused bits as Go is.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

#[cfg(test)]
mod tests;
