//! Which headers belong to one connection and which go through (RFC 9110 §7.6.1).

use http::HeaderMap;
use http::header::{
    AUTHORIZATION, CONNECTION, COOKIE, EXPECT, FORWARDED, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, TE, TRANSFER_ENCODING,
    UPGRADE,
};

use super::refusal::ForwardRefusal;
use crate::auth::impersonation;
use crate::auth::user::User;

/// Sent by clients to tie their request to the server's audit log; echoed by the server (docs/PROTOCOL.md §3.11).
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

/// Headers by which a front proxy vouches for users, besides `X-Remote-*`. They never travel: nobody but the gateway could be
/// believed upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// Whole names.
    pub names: Vec<HeaderName>,
    /// What names begin with, in lower case.
    pub prefixes: Vec<String>,
}

impl ProxyHeaders {
    fn covers(&self, name: &HeaderName) -> bool {
        let is_prefix =
            |prefix: &String| !prefix.is_empty() && name.as_str().starts_with(prefix.as_str());
        name.as_str().starts_with("x-remote-")
            || self.names.contains(name)
            || self.prefixes.iter().any(is_prefix)
    }
}

/// Removes from a caller's request what must not travel: headers of its connection, and those of front proxies.
///
/// `Trailer` stays: it announces fields that do travel, and HTTP/1.1 drops unannounced ones. `Expect` goes: our server
/// side answers it when the body is first read.
pub(super) fn clear_request(headers: &mut HeaderMap, proxy: &ProxyHeaders) {
    let wants_trailers = tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    clear_connection(headers, is_end_to_end);
    headers.remove(EXPECT);
    remove(headers, |name| proxy.covers(name));
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Removes from upstream's response what speaks of its connection.
pub(super) fn clear_response(headers: &mut HeaderMap) {
    clear_connection(headers, |_| false);
}

/// Takes away everything by which a request says who sent it.
pub(super) fn make_anonymous(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    remove(headers, impersonation::is_header);
    remove_bearer_protocol(headers);
}

/// Makes a request act as a user, provided it is sent by somebody who may impersonate it, and as nobody else.
///
/// # Errors
/// The user cannot be named in headers.
pub(super) fn impersonate(headers: &mut HeaderMap, user: &User) -> Result<(), ForwardRefusal> {
    make_anonymous(headers);
    let own = impersonation::headers(user).map_err(|_| ForwardRefusal::UnsendableUser)?;
    headers.extend(own);
    Ok(())
}

/// Takes bearer tokens out of the protocols that a WebSocket offers.
fn remove_bearer_protocol(headers: &mut HeaderMap) {
    let is_token = |protocol: &&[u8]| protocol.starts_with(BEARER_PROTOCOL);
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let protocols = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let protocols: Vec<_> = protocols.map(<[u8]>::trim_ascii).collect();
    if !protocols.iter().any(is_token) {
        return;
    }
    let others: Vec<_> = protocols.into_iter().filter(|one| !is_token(one)).collect();
    let others = HeaderValue::from_bytes(&others.join(&b", "[..]));
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(others) = others.ok().filter(|value| !value.is_empty()) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    }
}

/// How the API server takes bearer tokens from browsers.
const BEARER_PROTOCOL: &[u8] = b"base64url.bearer.authorization.k8s.io.";

/// Headers that say who sends a request, or for whom, and so are never taken off because `Connection` lists them. The API server
/// ignores such lists: with the header gone, it would see somebody else's request, or one without its impersonation.
fn is_end_to_end(name: &HeaderName) -> bool {
    const NAMES: [HeaderName; 5] = [
        AUTHORIZATION,
        COOKIE,
        FORWARDED,
        SEC_WEBSOCKET_PROTOCOL,
        HeaderName::from_static("x-real-ip"),
    ];
    impersonation::is_header(name)
        || name.as_str().starts_with("x-forwarded-")
        || NAMES.contains(name)
}

/// Whether the request asks to act as somebody else, by any of the `Impersonate-*` headers. Names are in lower case here, however
/// they were spelled on the wire.
#[must_use]
pub fn impersonates(headers: &HeaderMap) -> bool {
    headers.keys().any(impersonation::is_header)
}

fn clear_connection(headers: &mut HeaderMap, stays: impl Fn(&HeaderName) -> bool) {
    // Names that are no header names, such as `close`, are simply not found.
    let listed: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| token.parse().ok())
        .filter(|name| !stays(name))
        .collect();
    for name in listed.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

fn remove(headers: &mut HeaderMap, is_unwanted: impl Fn(&HeaderName) -> bool) {
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_unwanted(name))
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
