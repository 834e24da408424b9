//! Answers that are no Status: plain text, as the server's outermost layers give.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response};

use super::{NO_CACHE, status_code};

/// A plain-text failure (docs/PROTOCOL.md §6.2, §6.8, §1.1 c).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainText {
    code: u16,
    body: String,
    filter: Filter,
}

/// Whether the filter that adds `Cache-Control` had run when the request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filter {
    Passed,
    NotReached,
    /// Nor any other: the connection ends with the answer.
    NoHandler,
}

impl PlainText {
    /// 400 for a target that is no URL: Go's server answers before any handler does.
    #[must_use]
    pub fn bad_target() -> Self {
        Self {
            code: 400,
            body: "400 Bad Request".to_owned(),
            filter: Filter::NoHandler,
        }
    }

    /// 400 for a request that does not name its host as it must; also from Go's server.
    #[must_use]
    pub fn bad_host(fault: &str) -> Self {
        Self {
            code: 400,
            body: format!("400 Bad Request: {fault}"),
            filter: Filter::NoHandler,
        }
    }

    /// 417 for an `Expect` header that says anything but `100-continue`; from Go's server, too.
    #[must_use]
    pub fn unmet_expectation() -> Self {
        Self {
            code: 417,
            body: String::new(),
            filter: Filter::NoHandler,
        }
    }

    /// 404 for a path that nobody serves.
    #[must_use]
    pub fn not_found() -> Self {
        Self {
            code: 404,
            body: "404 page not found\n".to_owned(),
            filter: Filter::Passed,
        }
    }

    /// 500 for a request whose URL cannot be understood; `uri` is the raw request target.
    #[must_use]
    pub fn bad_url(uri: &str) -> Self {
        let quoted = crate::view::selector::quoted(uri);
        let text = format!(
            "Internal Server Error: {quoted}: failed to create RequestInfo: \
             unable to determine kind and namespace from url, {uri}\n"
        );
        Self {
            code: 500,
            body: sanitized(&text),
            filter: Filter::NotReached,
        }
    }

    /// 500 for an authorizer that failed.
    #[must_use]
    pub fn authorizer_failed(uri: &str, fault: &str) -> Self {
        let quoted = crate::view::selector::quoted(uri);
        Self {
            code: 500,
            body: sanitized(&format!("Internal Server Error: {quoted}: {fault}\n")),
            filter: Filter::Passed,
        }
    }

    /// The HTTP answer.
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
        if self.filter == Filter::Passed {
            headers.insert(CACHE_CONTROL, NO_CACHE);
        }
        response
    }
}

/// Without what could be taken for HTML; quotes stay.
pub(super) fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
