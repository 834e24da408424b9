//! Reads the body of a write.

use std::error::Error;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body::Body;
use http_body_util::{BodyExt, Limited};

use crate::protocol::status::Status;

/// kube-apiserver's limit on the body of a write.
const BODY_LEN_MAX: usize = 3 << 20;

/// Reads a whole body, up to [`BODY_LEN_MAX`].
///
/// # Errors
/// 413 for a longer body, 400 if reading it fails.
pub(super) async fn collect_body<B>(body: B) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match Limited::new(body, BODY_LEN_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(fault) if fault.is::<http_body_util::LengthLimitError>() => Err(Status::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {BODY_LEN_MAX}"),
        )),
        Err(fault) => Err(Status::bad_request(fault.to_string())),
    }
}

/// 415 for a body whose content type is not JSON.
pub(super) fn unknown_format() -> Status {
    Status::new(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json",
    )
}

/// The media type of a request's body, without parameters; empty if there is none.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}
