//! The opening handshake, validated as the API server does (RFC 6455 §4.2; golang.org/x/net/websocket). Pure.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONNECTION, HeaderName, ORIGIN, UPGRADE};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::origin::{OriginVerdict, judge_origin};

const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
pub(super) const VERSION: HeaderName = HeaderName::from_static("sec-websocket-version");
const PROTOCOL: HeaderName = HeaderName::from_static("sec-websocket-protocol");
const ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");
/// Browsers cannot set `Authorization`, so the API server accepts a bearer token as a subprotocol. It is not negotiated and not
/// repeated in the response.
const TOKEN_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";
/// The GUID of RFC 6455 §1.3 that the accept key is derived with.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A valid handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    accept: HeaderValue,
    /// The client's subprotocol, which the response repeats; it has no effect on a watch.
    protocol: Option<HeaderValue>,
}

/// The fault of a handshake, in the order in which the API server checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeFault {
    /// The key is missing.
    Key,
    /// The version is not 13.
    Version,
    /// The origin is missing or does not parse.
    Origin,
    /// Several subprotocols: the API server does not choose among them.
    Protocols,
    /// The origin has a form that only upstream can validate.
    Unclear,
}

impl HandshakeFault {
    pub(super) const fn error_response(self) -> (StatusCode, &'static str) {
        match self {
            Self::Key => (StatusCode::BAD_REQUEST, "mismatch challenge/response"),
            Self::Version => (StatusCode::BAD_REQUEST, "missing or bad WebSocket Version"),
            Self::Origin | Self::Unclear => (StatusCode::FORBIDDEN, ""),
            Self::Protocols => (StatusCode::BAD_REQUEST, ""),
        }
    }
}

/// Whether the headers request a WebSocket. Only the first of repeated headers counts, and any `Connection` that contains
/// `upgrade`.
pub(super) fn is_requested(headers: &HeaderMap) -> bool {
    let first = |name: HeaderName| headers.get(name).map_or(&[][..], HeaderValue::as_bytes);
    let connection = first(CONNECTION).to_ascii_lowercase();
    first(UPGRADE).eq_ignore_ascii_case(b"websocket")
        && memchr::memmem::find(&connection, b"upgrade").is_some()
}

/// Validates a handshake.
pub(super) fn read(headers: &HeaderMap) -> Result<Handshake, HandshakeFault> {
    let first = |name: HeaderName| headers.get(name).map_or(&[][..], HeaderValue::as_bytes);
    let key = first(KEY);
    if key.is_empty() {
        return Err(HandshakeFault::Key);
    }
    if first(VERSION) != b"13" {
        return Err(HandshakeFault::Version);
    }
    match judge_origin(first(ORIGIN)) {
        OriginVerdict::Parses => {}
        OriginVerdict::Fails => return Err(HandshakeFault::Origin),
        OriginVerdict::Unclear => return Err(HandshakeFault::Unclear),
    }
    let protocols = without_token(headers);
    let protocol = protocols.as_deref().unwrap_or_else(|| first(PROTOCOL));
    if protocol.contains(&b',') {
        return Err(HandshakeFault::Protocols);
    }
    let protocol = protocol.trim_ascii();
    Ok(Handshake {
        accept: accept_of(key),
        protocol: HeaderValue::from_bytes(protocol)
            .ok()
            .filter(|protocol| !protocol.is_empty()),
    })
}

/// The subprotocols of all headers without the bearer token, as the API server rewrites them when it uses the token; `None` if
/// there is no token.
fn without_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let values = headers.get_all(PROTOCOL).iter();
    let protocols = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let (tokens, others): (Vec<_>, Vec<_>) = protocols
        .map(<[u8]>::trim_ascii)
        .partition(|protocol| protocol.starts_with(TOKEN_PREFIX.as_bytes()));
    (!tokens.is_empty()).then(|| others.join(&b','))
}

impl Handshake {
    /// Writes the response headers that accept the handshake.
    pub(super) fn accept(&self, headers: &mut HeaderMap) {
        headers.insert(ACCEPT, self.accept.clone());
        if let Some(protocol) = &self.protocol {
            headers.insert(PROTOCOL, protocol.clone());
        }
    }
}

/// The `Sec-WebSocket-Accept` value. The protocol requires SHA-1; no secret depends on it.
fn accept_of(key: &[u8]) -> HeaderValue {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat());
    let text = STANDARD.encode(hash);
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: [(&str, &str); 5] = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        // The example of RFC 6455 §1.3.
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
        ("origin", "http://127.0.0.1"),
    ];

    fn headers(changes: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in WHOLE.iter().chain(changes) {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        headers
    }

    #[track_caller]
    fn check(
        changes: &[(&'static str, &'static str)],
        expected: Result<Option<&str>, HandshakeFault>,
    ) {
        let read = read(&headers(changes)).map(|handshake| {
            assert_eq!(handshake.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
            let protocol = handshake.protocol.as_ref();
            protocol.map(|protocol| protocol.to_str().unwrap().to_owned())
        });
        assert_eq!(
            read,
            expected.map(|protocol| protocol.map(str::to_owned)),
            "{changes:?}"
        );
    }

    #[test]
    fn handshakes_are_judged_in_the_servers_order() {
        check(&[], Ok(None));
        check(
            &[("sec-websocket-key", ""), ("sec-websocket-version", "8")],
            Err(HandshakeFault::Key),
        );
        check(
            &[("sec-websocket-version", "8"), ("origin", "")],
            Err(HandshakeFault::Version),
        );
        check(
            &[("origin", "null"), ("sec-websocket-protocol", "a, b")],
            Err(HandshakeFault::Origin),
        );
        check(
            &[("sec-websocket-protocol", "a, b")],
            Err(HandshakeFault::Protocols),
        );
        check(
            &[("sec-websocket-protocol", "a,")],
            Err(HandshakeFault::Protocols),
        );
        check(&[("sec-websocket-protocol", " a ")], Ok(Some("a")));
        for (protocols, expected) in [
            (
                "base64url.bearer.authorization.k8s.io.dG9rZW4, a",
                Ok(Some("a")),
            ),
            (
                "a,base64url.bearer.authorization.k8s.io.dG9rZW4",
                Ok(Some("a")),
            ),
            ("base64url.bearer.authorization.k8s.io.dG9rZW4", Ok(None)),
            (
                "a, base64url.bearer.authorization.k8s.io.x, b",
                Err(HandshakeFault::Protocols),
            ),
        ] {
            check(&[("sec-websocket-protocol", protocols)], expected);
        }
    }

    #[track_caller]
    fn check_requested(connection: &'static str, upgrade: &'static str, expected: bool) {
        let headers = headers(&[("connection", connection), ("upgrade", upgrade)]);
        assert_eq!(is_requested(&headers), expected, "{connection}, {upgrade}");
    }

    #[test]
    fn a_websocket_is_recognised_as_the_server_does() {
        check_requested("Upgrade", "websocket", true);
        check_requested("keep-alive, upgrade", "WebSocket", true);
        check_requested("xupgrade", "websocket", true);
        check_requested("keep-alive", "websocket", false);
        check_requested("Upgrade", "SPDY/3.1", false);
        check_requested("Upgrade", "websocket, h2c", false);
    }
}
