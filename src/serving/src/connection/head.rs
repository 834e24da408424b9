//! The head of a chunked HTTP/1.1 response, written as hyper writes it, for responses that do not pass through hyper.

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// Initial capacity in bytes; the heads of watches are shorter.
const LEN: usize = 256;

/// The head of a response with status 200, these headers and a chunked body.
pub(crate) fn chunked_ok(headers: &HeaderMap, now: Timestamp) -> Bytes {
    let mut head = BytesMut::with_capacity(LEN);
    head.put_slice(b"HTTP/1.1 200 OK\r\n");
    for (name, value) in headers {
        head.put_slice(name.as_str().as_bytes());
        head.put_slice(b": ");
        head.put_slice(value.as_bytes());
        head.put_slice(b"\r\n");
    }
    head.put_slice(b"transfer-encoding: chunked\r\n");
    // Fails for years that four digits cannot hold. A server without a reliable clock may omit the date (RFC 9110 §6.6.1).
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&now) {
        head.put_slice(b"date: ");
        head.put_slice(date.as_bytes());
        head.put_slice(b"\r\n");
    }
    head.put_slice(b"\r\n");
    head.freeze()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::{CONTENT_TYPE, WARNING};

    use super::*;

    #[test]
    fn a_head_has_every_header_and_says_how_the_body_comes() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.append(WARNING, HeaderValue::from_static("299 - \"one\""));
        headers.append(WARNING, HeaderValue::from_static("299 - \"two\""));
        let head = chunked_ok(&headers, Timestamp::UNIX_EPOCH);
        assert_eq!(
            String::from_utf8_lossy(&head),
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nwarning: 299 - \"one\"\r\n\
             warning: 299 - \"two\"\r\ntransfer-encoding: chunked\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n"
        );
    }
}
