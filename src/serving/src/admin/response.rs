//! The form of the admin port's responses.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};

use super::access::AccessRefusal;

pub(super) type AdminResponse = Response<BoxBody<Bytes, Infallible>>;

/// Characters of an unknown parameter that are repeated to the client.
const PARAMETER_LEN_MAX: usize = 64;
const TEXT: &str = "text/plain; charset=utf-8";

pub(super) fn text(status: StatusCode, body: String) -> AdminResponse {
    reply(status, TEXT, body)
}

pub(super) fn reply(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> AdminResponse {
    let mut response = Response::new(Full::new(body.into()).boxed());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The value of the only parameter that a path has.
///
/// # Errors
/// A sentence for the client if there is another parameter, or this one twice.
pub(super) fn only_parameter<'a>(
    query: Option<&'a str>,
    name: &str,
) -> Result<Option<&'a str>, String> {
    let mut found = None;
    let pairs = query.unwrap_or_default().split('&');
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key != name {
            let key: String = key.chars().take(PARAMETER_LEN_MAX).collect();
            return Err(format!("unknown parameter {key:?}: only {name} is allowed"));
        }
        if found.replace(value).is_some() {
            return Err(format!("{name}: write it once"));
        }
    }
    Ok(found)
}

/// The response to a method that the path does not have; `allowed` is the value of `Allow`.
pub(super) fn wrong_method(allowed: &'static str) -> AdminResponse {
    let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, format!("only {allowed}\n"));
    let allowed = HeaderValue::from_static(allowed);
    refusal.headers_mut().insert(ALLOW, allowed);
    refusal
}

/// The response to a client that may not have what it asks for.
pub(super) fn refused((code, reason): AccessRefusal) -> AdminResponse {
    let mut refusal = text(code, reason);
    if code == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        refusal.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    refusal
}
