//! Which headers belong to one connection and which are forwarded (RFC 9110 §7.6.1).

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{
    AUTHORIZATION, CONNECTION, COOKIE, EXPECT, FORWARDED, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, TE, TRANSFER_ENCODING,
    UPGRADE,
};

use super::refusal::ForwardRefusal;
use crate::auth::impersonation::{self, Impersonator};
use crate::auth::user::User;

/// Clients send it to connect their request with the server's audit log; the server returns it (docs/PROTOCOL.md §3.11).
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A protocol upgrade that a client requests or a server accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Upgrade {
    protocol: HeaderValue,
}

impl Upgrade {
    /// Reads an upgrade: `Connection` lists `upgrade` and `Upgrade` names a protocol. `h2c` is not forwarded, because it refers to the
    /// HTTP version of this connection.
    pub(super) fn requested_by(headers: &HeaderMap) -> Option<Self> {
        let protocol = headers.get(UPGRADE)?;
        let listed =
            tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
        let is_h2c = protocol.as_bytes().eq_ignore_ascii_case(b"h2c");
        (listed && !is_h2c).then(|| Self {
            protocol: protocol.clone(),
        })
    }

    /// Writes it into the headers for the next connection, which may ask for the connection's end already. Some servers look for `Upgrade`
    /// in the first line only.
    pub(super) fn write_to(&self, headers: &mut HeaderMap) {
        let options = match headers.contains_key(CONNECTION) {
            true => "Upgrade, close",
            false => "Upgrade",
        };
        headers.insert(CONNECTION, HeaderValue::from_static(options));
        headers.insert(UPGRADE, self.protocol.clone());
    }
}

/// Headers in which a front proxy sends users, besides `X-Remote-*`. They are never forwarded, because upstream would take them as the
/// gateway's own claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// Complete names.
    pub names: Vec<HeaderName>,
    /// Prefixes of names, in lower case.
    pub prefixes: Vec<String>,
}

impl ProxyHeaders {
    fn covers(&self, name: &HeaderName) -> bool {
        name.as_str().starts_with("x-remote-")
            || self.names.contains(name)
            || self
                .prefixes
                .iter()
                .any(|prefix| !prefix.is_empty() && name.as_str().starts_with(prefix.as_str()))
    }
}

/// Removes the headers that must not be forwarded from a caller's request: those of its connection and those of front proxies.
///
/// `Trailer` stays: it announces fields that are forwarded, and HTTP/1.1 drops unannounced ones. `Expect` is removed: hyper's server side
/// answers it when the body is first read.
pub(super) fn clear_request(headers: &mut HeaderMap, proxy: &ProxyHeaders) {
    let wants_trailers = tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    clear_connection(headers, is_end_to_end);
    headers.remove(EXPECT);
    remove(headers, |name| proxy.covers(name));
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Appends the client's address to `X-Forwarded-For`, as Go's reverse proxy does, so that upstream's audit log has it, behind whatever the
/// client claims. Other claims to be somebody's address are removed: upstream would take them for the gateway's.
pub(super) fn append_client(headers: &mut HeaderMap, client: IpAddr) {
    for name in OF_CLIENT_ADDRESS {
        headers.remove(name);
    }
    let client = client.to_canonical().to_string();
    let mut addresses: Vec<&[u8]> = headers
        .get_all(X_FORWARDED_FOR)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    addresses.push(client.as_bytes());
    if let Ok(addresses) = HeaderValue::from_bytes(&addresses.join(&b", "[..])) {
        headers.insert(X_FORWARDED_FOR, addresses);
    }
}

/// Removes the headers of upstream's connection from its response.
pub(super) fn clear_response(headers: &mut HeaderMap) {
    clear_connection(headers, |_| false);
}

/// Removes all credentials and impersonation headers.
pub(super) fn make_anonymous(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    remove(headers, impersonation::is_header);
    remove_bearer_protocol(headers);
}

/// Replaces a request's credentials by headers that impersonate `user`. The sender must have the right to impersonate.
///
/// # Errors
/// If the user cannot be expressed in headers.
pub(super) fn impersonate(
    headers: &mut HeaderMap,
    impersonator: &Impersonator,
    user: &User,
) -> Result<(), ForwardRefusal> {
    make_anonymous(headers);
    let written = impersonator.headers(user);
    headers.extend(written.map_err(|_| ForwardRefusal::UnsendableUser)?);
    Ok(())
}

/// Removes bearer tokens from the protocols that a WebSocket client offers.
fn remove_bearer_protocol(headers: &mut HeaderMap) {
    let (tokens, others): (Vec<_>, Vec<_>) = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .partition(|protocol| protocol.starts_with(BEARER_PROTOCOL));
    if tokens.is_empty() {
        return;
    }
    let others = HeaderValue::from_bytes(&others.join(&b", "[..]));
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(others) = others.ok().filter(|value| !value.is_empty()) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    }
}

/// The prefix of the WebSocket protocol in which browsers send bearer tokens to the API server.
const BEARER_PROTOCOL: &[u8] = b"base64url.bearer.authorization.k8s.io.";

/// Headers that name the sender of a request or the user that it acts for. They are kept even if `Connection` lists them. The API server
/// ignores such lists; if the gateway removed them, upstream would see another caller's request, or one without its impersonation.
fn is_end_to_end(name: &HeaderName) -> bool {
    const NAMES: [HeaderName; 3] = [AUTHORIZATION, COOKIE, SEC_WEBSOCKET_PROTOCOL];
    impersonation::is_header(name)
        || name.as_str().starts_with("x-forwarded-")
        || NAMES.contains(name)
}

fn clear_connection(headers: &mut HeaderMap, is_kept: impl Fn(&HeaderName) -> bool) {
    // Tokens that are no header of the request, such as `close`, have no effect.
    let listed: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| token.parse().ok())
        .filter(|name| !is_kept(name))
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

/// The comma-separated tokens of all values of a header; values that are not text are skipped.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Headers other than `X-Forwarded-For` in which proxies write their client's address.
const OF_CLIENT_ADDRESS: [HeaderName; 7] = [
    FORWARDED,
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("true-client-ip"),
    HeaderName::from_static("x-client-ip"),
    HeaderName::from_static("x-cluster-client-ip"),
    HeaderName::from_static("cf-connecting-ip"),
    HeaderName::from_static("fastly-client-ip"),
];

/// Headers of one connection, whether `Connection` lists them or not.
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
