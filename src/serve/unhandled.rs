//! Requests of HTTP/1 that Go's server refuses before any handler sees them. Looks at no resource.

use http::header::{EXPECT, HOST};
use http::{Method, Request, Version};

use crate::protocol::status::PlainText;

/// What Go's server refuses before any handler sees it. It does so of HTTP/1 alone; over HTTP/2 the expectation is ignored.
pub(super) fn unhandled<B>(request: &Request<B>) -> Option<PlainText> {
    if request.version() >= Version::HTTP_2 {
        return None;
    }
    let expects = request.headers().get(EXPECT);
    if expects.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Some(PlainText::unmet_expectation());
    }
    if let Some(fault) = host_fault(request) {
        return Some(PlainText::bad_host(fault));
    }
    (!is_escaped_well(request.uri().path())).then(PlainText::bad_target)
}

/// What is wrong with the `Host` of an HTTP/1 request, in Go's words.
fn host_fault<B>(request: &Request<B>) -> Option<&'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if must_name_host(request) => Some("missing required Host header"),
        (None, _) => None,
        (Some(_), Some(_)) => Some("too many Host headers"),
        (Some(host), None) => {
            let is_legal = |byte: &u8| byte.is_ascii_alphanumeric() || HOST_SIGNS.contains(byte);
            (!host.as_bytes().iter().all(is_legal)).then_some("malformed Host header")
        }
    }
}

/// `CONNECT` names its host in the request line.
fn must_name_host<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11 && request.method() != Method::CONNECT
}

/// What a host may be written with besides letters and digits.
const HOST_SIGNS: &[u8] = b"!$%&'()*+,-._:;=[]~";

/// Whether every `%` begins an escape.
pub(super) fn is_escaped_well(path: &str) -> bool {
    let mut pieces = path.as_bytes().split(|byte| *byte == b'%');
    let escape = |piece: &[u8]| piece.len() >= 2 && piece[..2].iter().all(u8::is_ascii_hexdigit);
    pieces.next().is_some() && pieces.all(escape)
}
