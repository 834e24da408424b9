//! Error responses that are not a Status but plain text, as the API server's outermost layers send them.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response};

use super::{NO_CACHE, status_code};

/// A plain-text failure (docs/PROTOCOL.md §6.2, §6.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainText {
    code: u16,
    body: String,
    filter: Filter,
}

/// Whether the API server's filters had run when the request failed, which decides the response's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filter {
    /// They had, and one of them adds `Cache-Control`.
    Passed,
    /// They had not: Go's server answers and closes the connection.
    NoHandler,
}

impl PlainText {
    /// 400 for a request target that is not a URL. Go's server sends it before any handler runs.
    #[must_use]
    pub fn bad_target() -> Self {
        Self {
            code: 400,
            body: "400 Bad Request".to_owned(),
            filter: Filter::NoHandler,
        }
    }

    /// 400 for a request whose `Host` is missing or invalid. Go's server sends it before any handler runs.
    #[must_use]
    pub fn bad_host(fault: &str) -> Self {
        Self {
            code: 400,
            body: format!("400 Bad Request: {fault}"),
            filter: Filter::NoHandler,
        }
    }

    /// 417 for an `Expect` header other than `100-continue`. Go's server sends it before any handler runs.
    #[must_use]
    pub fn unmet_expectation() -> Self {
        Self {
            code: 417,
            body: String::new(),
            filter: Filter::NoHandler,
        }
    }

    /// The answer to a relay on a node.
    #[must_use]
    pub fn relay(code: u16, body: &'static str) -> Self {
        Self {
            code,
            body: body.to_owned(),
            filter: Filter::Passed,
        }
    }

    /// 404 for a path that is not served.
    #[must_use]
    pub fn not_found() -> Self {
        Self {
            code: 404,
            body: "404 page not found\n".to_owned(),
            filter: Filter::Passed,
        }
    }

    /// 500 for an authorizer that failed; `uri` is the raw request target.
    #[must_use]
    pub fn authorizer_failed(uri: &str, fault: &str) -> Self {
        let quoted = crate::selector::quoted(uri);
        Self {
            code: 500,
            body: sanitized(&format!("Internal Server Error: {quoted}: {fault}\n")),
            filter: Filter::Passed,
        }
    }

    /// The HTTP response.
    #[must_use]
    pub fn to_response(&self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.body.clone()));
        *response.status_mut() = status_code(self.code);
        let headers = response.headers_mut();
        if !self.body.is_empty() {
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            headers.insert(CONTENT_TYPE, text);
        }
        if self.filter == Filter::NoHandler {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CACHE_CONTROL, NO_CACHE);
        response
    }
}

/// Escapes what could be taken for HTML; quotes stay as they are.
pub(super) fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
