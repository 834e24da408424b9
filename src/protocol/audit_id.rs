//! The audit ID of a request, which is repeated in its response.

use http::{HeaderMap, HeaderName, HeaderValue, Response};

pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The client's own audit ID, or else a random UUID (docs/PROTOCOL.md §3.11).
#[must_use]
pub fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let from_client = headers.get(AUDIT_ID).filter(|value| !value.is_empty());
    from_client.cloned().unwrap_or_else(|| {
        let text = crate::resource::random_uuid();
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("-"))
    })
}

/// Sets the audit ID header of a response.
pub fn with_audit_id<B>(mut response: Response<B>, audit_id: &HeaderValue) -> Response<B> {
    response.headers_mut().insert(AUDIT_ID, audit_id.clone());
    response
}
