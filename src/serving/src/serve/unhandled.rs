//! Rejects requests that Go's server rejects before any handler runs. Looks at no resource.

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HOST};
use http::{Method, Request, Response, Version};

use crate::protocol::status::PlainText;

/// The response to a request that Go's server rejects before any handler runs. Over HTTP/2 that server ignores `Expect`, and resets the
/// stream of a path with an invalid escape; the gateway answers as over HTTP/1.
pub(super) fn unhandled<B>(request: &Request<B>) -> Option<Response<Bytes>> {
    let is_http2 = request.version() >= Version::HTTP_2;
    let fault = if is_http2 { None } else { http1_fault(request) };
    let mut response = fault
        .or_else(|| (!is_escaped_well(request.uri().path())).then(PlainText::bad_target))?
        .to_response();
    if is_http2 {
        // HTTP/2 has no such header (RFC 9113 §8.2.2).
        response.headers_mut().remove(CONNECTION);
    }
    Some(response)
}

/// The fault of the headers that only HTTP/1 has.
fn http1_fault<B>(request: &Request<B>) -> Option<PlainText> {
    let expects = request.headers().get(EXPECT);
    if expects.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Some(PlainText::unmet_expectation());
    }
    // A target that is a host and no path; `http::Uri` reads it as an authority.
    let names_host = request.uri().scheme().is_none() && request.uri().authority().is_some();
    if names_host && request.method() != Method::CONNECT {
        return Some(PlainText::bad_target());
    }
    host_fault(request).map(PlainText::bad_host)
}

/// Go's error message about the `Host` of an HTTP/1 request.
fn host_fault<B>(request: &Request<B>) -> Option<&'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if must_name_host(request) => Some("missing required Host header"),
        (None, _) => None,
        (Some(_), Some(_)) => Some("too many Host headers"),
        (Some(host), None) if host.as_bytes().iter().all(is_host_byte) => None,
        (Some(_), None) => Some("malformed Host header"),
    }
}

/// Whether `Host` is required: `CONNECT` names its host in the request line.
fn must_name_host<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11 && request.method() != Method::CONNECT
}

/// The characters that a host may have besides letters and digits.
const HOST_SIGNS: &[u8] = b"!$%&'()*+,-._:;=[]~";

fn is_host_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || HOST_SIGNS.contains(byte)
}

/// Whether every `%` starts a valid escape.
pub(super) fn is_escaped_well(path: &str) -> bool {
    let mut parts = path.as_bytes().split(|byte| *byte == b'%');
    parts.next().is_some()
        && parts.all(|part| part.len() >= 2 && part[..2].iter().all(u8::is_ascii_hexdigit))
}
