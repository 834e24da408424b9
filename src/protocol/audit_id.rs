//! The audit ID of a request, which its response repeats.

use http::{HeaderMap, HeaderName, HeaderValue, Response};

pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The client's own audit id, or a random UUID (docs/PROTOCOL.md §3.11).
#[must_use]
pub fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(AUDIT_ID).filter(|value| !value.is_empty());
    given.cloned().unwrap_or_else(|| {
        let text = crate::resource::random_uuid();
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("-"))
    })
}

/// Gives an answer its audit id.
pub fn with_audit_id<B>(mut answer: Response<B>, audit_id: &HeaderValue) -> Response<B> {
    answer.headers_mut().insert(AUDIT_ID, audit_id.clone());
    answer
}
