//! The audit ID of a request, which is repeated in its response.

use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, HeaderName, HeaderValue, Response};

/// The header with which the API server and the gateway name a request in their audit logs.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The client's own audit ID, or else a random UUID (docs/PROTOCOL.md §3.11).
#[must_use]
pub fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let from_client = headers.get(AUDIT_ID).filter(|value| !value.is_empty());
    from_client.cloned().unwrap_or_else(|| {
        let text = random_uuid();
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("-"))
    })
}

/// A random UUID (RFC 9562, version 4).
#[must_use]
pub fn random_uuid() -> String {
    // Keyed with the operating system's random bytes: replicas that start at the same moment must not use the same ids.
    let bits = || u128::from(RandomState::new().hash_one(0_u8));
    uuid::Builder::from_random_bytes((bits() << 64 | bits()).to_be_bytes())
        .into_uuid()
        .to_string()
}

/// Sets the audit ID header of a response.
pub fn with_audit_id<B>(mut response: Response<B>, audit_id: &HeaderValue) -> Response<B> {
    response.headers_mut().insert(AUDIT_ID, audit_id.clone());
    response
}
