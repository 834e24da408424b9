//! Responses whose body is in memory, and the headers that every response carries.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};

use crate::protocol::status::NO_CACHE;
use crate::protocol::with_audit_id;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A response with compact JSON and a newline.
pub(super) fn json(code: StatusCode, document: &Bytes) -> Response<Bytes> {
    whole(code, JSON, [document, b"\n".as_slice()].concat().into())
}

/// A response with this body.
pub(super) fn whole(code: StatusCode, content_type: HeaderValue, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Adds the headers that every response carries: the audit id, and `Cache-Control` unless it is set already.
pub(super) fn with_common_headers<B>(response: Response<B>, audit_id: &HeaderValue) -> Response<B> {
    let mut response = with_audit_id(response, audit_id);
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert(NO_CACHE);
    response
}
