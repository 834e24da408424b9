//! From upstream's response, or the lack of one, to the client's.

use std::time::Duration;

use http::Response;
use http::response::Parts;
use http_body_util::BodyExt as _;

use super::active::ActiveRequest;
use super::body::UnguardedBody;
use super::headers;
use super::lanes::ForwardLane;
use super::refusal::ForwardRefusal;
use crate::metrics::PassthroughError;
use crate::upstream::client::{ResponseBody, SendError};

pub(super) fn incoming(
    response: Response<ResponseBody>,
    active: ActiveRequest,
) -> Response<UnguardedBody> {
    let (parts, body) = response.into_parts();
    own_body(parts, UnguardedBody::Upstream(body, active))
}

fn own_body(mut parts: Parts, body: UnguardedBody) -> Response<UnguardedBody> {
    headers::clear_response(&mut parts.headers);
    // The HTTP version and the extensions belong to upstream's connection.
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    response
}

/// Reads a short response completely within `limit`, which releases the permit before the client has received the response.
pub(super) async fn short_answer(
    response: Response<ResponseBody>,
    active: ActiveRequest,
    repeatable: bool,
    limit: Duration,
) -> Result<Response<UnguardedBody>, ForwardRefusal> {
    let (parts, body) = response.into_parts();
    let bytes = tokio::time::timeout(limit, body.collect())
        .await
        .map_err(|_elapsed| ForwardRefusal::Timeout)?
        .map_err(|error| ForwardRefusal::Unreachable {
            reason: error.to_string(),
            label: PassthroughError::Broken,
            may_repeat: repeatable,
        })?;
    let bytes = bytes.to_bytes();
    active.metrics().bytes_received.add(bytes.len() as u64);
    Ok(own_body(parts, UnguardedBody::Own(bytes)))
}

pub(super) fn send_error(error: &SendError, lane: ForwardLane, repeatable: bool) -> ForwardRefusal {
    tracing::debug!(
        error = error as &dyn std::error::Error,
        "cannot forward a request"
    );
    let unreachable = |label| ForwardRefusal::Unreachable {
        reason: error.to_string(),
        label,
        may_repeat: repeatable || error.is_unsent(),
    };
    match error {
        SendError::Saturated => lane.refusal(),
        SendError::Timeout => ForwardRefusal::Timeout,
        SendError::Target(_) => ForwardRefusal::Target,
        SendError::Broken(_)
        | SendError::Lost
        | SendError::Unprocessed(_)
        | SendError::Abandoned => unreachable(PassthroughError::Broken),
        SendError::Unreachable(_)
        | SendError::Untrusted(_)
        | SendError::Credentials(_)
        | SendError::NoEndpoint => unreachable(PassthroughError::Connect),
    }
}
