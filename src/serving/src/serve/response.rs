//! The heads of responses from memory.

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderValue, Response, StatusCode};

use super::service::ServiceResponse;
use crate::protocol::status::NO_CACHE;
use crate::protocol::websocket::{Framing, WebSocketUpgrade};

pub(super) fn with_content_type<B>(media_type: &'static str, body: B) -> Response<B> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, NO_CACHE);
    response
}

/// The header of an answer from a cache of this age. Code 299 is Kubernetes' own: clients show or log the text and do nothing else.
pub(super) fn stale_warning(age: Duration) -> Option<HeaderValue> {
    let seconds = age.as_secs();
    let text = format!(
        "299 - \"the API server has not been heard from for {seconds} s, so this answer may be out of date\""
    );
    HeaderValue::try_from(text).ok()
}

/// Turns the response to a watch into one over WebSocket; the body stays the watch. Errors stay as they are.
pub(super) fn switched(response: ServiceResponse, upgrade: &WebSocketUpgrade) -> ServiceResponse {
    if response.status() != StatusCode::OK {
        return response;
    }
    let framing = Framing::of(response.headers().get(CONTENT_TYPE));
    let (mut head, ()) = upgrade.accept().into_parts();
    head.extensions.insert(framing);
    Response::from_parts(head, response.into_body())
}

pub(super) fn gzipped<B>(mut response: Response<B>) -> Response<B> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}
