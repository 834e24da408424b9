//! Which headers belong to one connection and which go through (RFC 9110 §7.6.1).

use http::HeaderMap;
use http::header::{
    CONNECTION, EXPECT, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};

/// Sent by clients to tie their request to the server's audit log; echoed by the server (protocol.md §3.11).
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A wish to turn the connection into something else, or the server's consent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Upgrade {
    protocol: HeaderValue,
}

impl Upgrade {
    /// Reads the wish: `Connection` lists `upgrade` and `Upgrade` names a protocol. `h2c` is not one that goes through:
    /// it speaks of this connection's HTTP version.
    pub(super) fn asked_by(headers: &HeaderMap) -> Option<Self> {
        let protocol = headers.get(UPGRADE)?;
        let listed =
            tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
        let own = protocol.as_bytes().eq_ignore_ascii_case(b"h2c");
        (listed && !own).then(|| Self {
            protocol: protocol.clone(),
        })
    }

    /// Writes it for the next connection.
    pub(super) fn ask(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, self.protocol.clone());
    }
}

/// Removes from a caller's request what must not travel: headers of its connection, and `X-Remote-*`, by which a
/// front proxy vouches for users: nobody but the gateway could be believed there.
///
/// `Trailer` stays: it announces fields that do travel, and HTTP/1.1 drops unannounced ones. `Expect` goes: our server
/// side answers it when the body is first read.
pub(super) fn clear_request(headers: &mut HeaderMap) {
    let wants_trailers = tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    clear_connection(headers);
    headers.remove(EXPECT);
    remove_prefixed(headers, "x-remote-");
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Removes from upstream's response what speaks of its connection.
pub(super) fn clear_response(headers: &mut HeaderMap) {
    clear_connection(headers);
}

/// Whether the request asks to act as somebody else, by any of the `Impersonate-*` headers. Names are in lower case here, however
/// they were spelled on the wire.
#[must_use]
pub fn impersonates(headers: &HeaderMap) -> bool {
    headers
        .keys()
        .any(|name| name.as_str().starts_with("impersonate-"))
}

fn clear_connection(headers: &mut HeaderMap) {
    // Names that are no header names, such as `close`, are simply not found.
    let listed: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| token.parse().ok())
        .collect();
    for name in listed.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

fn remove_prefixed(headers: &mut HeaderMap, prefix: &str) {
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(prefix))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
}

/// The comma-separated words of all values of a header; values that are not text count as empty.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Known to speak of one connection, whether `Connection` lists them or not.
const OF_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

#[cfg(test)]
mod tests;
