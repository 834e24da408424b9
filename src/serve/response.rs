//! The heads of answers from memory.

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderValue, Response, StatusCode};

use super::AnswerBody;
use crate::protocol::status::NO_CACHE;
use crate::protocol::websocket::{Framing, WebSocketUpgrade};

pub(super) fn with_content_type<B>(media_type: &'static str, body: B) -> Response<B> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, NO_CACHE);
    response
}

/// Turns the answer to a watch into one over WebSocket, whose body is still the watch. Refusals stay as they are: the API server
/// checks the handshake after everything else.
pub(super) fn switched<F>(
    answer: Response<AnswerBody<F>>,
    upgrade: WebSocketUpgrade,
) -> Response<AnswerBody<F>> {
    if answer.status() != StatusCode::OK {
        return answer;
    }
    let framing = Framing::of(answer.headers().get(CONTENT_TYPE));
    match upgrade.accept() {
        Ok(head) => {
            let (mut parts, ()) = head.into_parts();
            parts.extensions.insert(framing);
            Response::from_parts(parts, answer.into_body())
        }
        Err(refusal) => refusal.map(AnswerBody::whole),
    }
}

pub(super) fn gzipped<B>(mut answer: Response<B>) -> Response<B> {
    let headers = answer.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    answer
}
