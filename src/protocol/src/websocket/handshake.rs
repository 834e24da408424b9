//! The opening handshake (RFC 6455 §4.2), accepted if golang.org/x/net/websocket certainly does. Pure.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONNECTION, HeaderName, ORIGIN, UPGRADE};
use http::{HeaderMap, HeaderValue};

const KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const VERSION: HeaderName = HeaderName::from_static("sec-websocket-version");
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

/// Whether the headers request a WebSocket. Only the first of repeated headers counts, and any `Connection` that contains
/// `upgrade`.
pub(super) fn is_requested(headers: &HeaderMap) -> bool {
    let first = |name: HeaderName| headers.get(name).map_or(&[][..], HeaderValue::as_bytes);
    let connection = first(CONNECTION).to_ascii_lowercase();
    first(UPGRADE).eq_ignore_ascii_case(b"websocket")
        && memchr::memmem::find(&connection, b"upgrade").is_some()
}

/// Reads a handshake; `None` if the API server may refuse it.
pub(super) fn read(headers: &HeaderMap) -> Option<Handshake> {
    let first = |name: HeaderName| headers.get(name).map_or(&[][..], HeaderValue::as_bytes);
    let key = first(KEY);
    if key.is_empty() || first(VERSION) != b"13" || !is_origin(first(ORIGIN)) {
        return None;
    }
    let protocols = without_token(headers);
    let protocol = protocols.as_deref().unwrap_or_else(|| first(PROTOCOL));
    // The API server does not choose among several subprotocols.
    if protocol.contains(&b',') {
        return None;
    }
    let protocol = protocol.trim_ascii();
    Some(Handshake {
        accept: accept_of(key),
        protocol: HeaderValue::from_bytes(protocol)
            .ok()
            .filter(|protocol| !protocol.is_empty()),
    })
}

/// Whether this is an origin as browsers send it: a scheme, a host that is a name or an IPv4 address, and perhaps a port.
fn is_origin(origin: &[u8]) -> bool {
    let Some((scheme, authority)) = std::str::from_utf8(origin)
        .ok()
        .and_then(|origin| origin.split_once("://"))
    else {
        return false;
    };
    let (host, port) = authority.split_once(':').unwrap_or((authority, "0"));
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && is_name(scheme, b"+-.")
        && is_name(host, b"-.")
        && is_name(port, b"")
        && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the text starts with a letter or a digit and has only these and `signs`.
fn is_name(text: &str, signs: &[u8]) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || signs.contains(&byte))
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

    /// Checks the subprotocol that is accepted; `None` if the handshake is not.
    #[track_caller]
    fn check(changes: &[(&'static str, &'static str)], expected: Option<Option<&str>>) {
        let read = read(&headers(changes)).map(|handshake| {
            assert_eq!(handshake.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
            let protocol = handshake.protocol.as_ref();
            protocol.map(|protocol| protocol.to_str().unwrap().to_owned())
        });
        let expected = expected.map(|protocol| protocol.map(str::to_owned));
        assert_eq!(read, expected, "{changes:?}");
    }

    #[test]
    fn a_handshake_that_is_certainly_valid_is_accepted() {
        check(&[], Some(None));
        check(&[("sec-websocket-key", "")], None);
        check(&[("sec-websocket-version", "8")], None);
        check(&[("origin", "null")], None);
        check(&[("sec-websocket-protocol", "a, b")], None);
        check(&[("sec-websocket-protocol", "a,")], None);
        check(&[("sec-websocket-protocol", " a ")], Some(Some("a")));
        for (protocols, expected) in [
            (
                "base64url.bearer.authorization.k8s.io.dG9rZW4, a",
                Some(Some("a")),
            ),
            (
                "a,base64url.bearer.authorization.k8s.io.dG9rZW4",
                Some(Some("a")),
            ),
            ("base64url.bearer.authorization.k8s.io.dG9rZW4", Some(None)),
            ("a, base64url.bearer.authorization.k8s.io.x, b", None),
        ] {
            check(&[("sec-websocket-protocol", protocols)], expected);
        }
    }

    #[test]
    fn an_origin_is_a_scheme_a_host_and_perhaps_a_port() {
        for origin in [
            "http://127.0.0.1",
            "https://example.com:8443",
            "chrome-extension://abc",
        ] {
            assert!(is_origin(origin.as_bytes()), "{origin}");
        }
        for origin in [
            "",
            "null",
            "*",
            "example.com",
            "/x",
            "http://",
            "://x",
            "1a://b",
            "http://a b",
            "http://x:",
            "http://x:abc",
            "http://x:1:2",
            "http://u@x:80",
            "http://[::1]:80",
            "http://%zz",
            "http://é",
            "http://x/y",
            "http://x?y",
        ] {
            assert!(!is_origin(origin.as_bytes()), "{origin}");
        }
        assert!(!is_origin(b"http://\xff"));
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
