//! Changes at the admin port: their body, and how long they are to be in force.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use tokio::time::timeout;

use super::response::only_parameter;

/// Why a body cannot be read.
pub(super) type BodyFault = Box<dyn Error + Send + Sync>;

/// A client that sends a few hundred bytes has sent them by then.
const BODY_WAIT_MAX: Duration = Duration::from_secs(10);
/// What is needed for longer belongs into the settings.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// The text of a body of at most this many bytes.
///
/// # Errors
/// The code and the sentence of the response.
pub(super) async fn text_of<B>(body: B, len_max: usize) -> Result<String, (StatusCode, String)>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BodyFault>,
{
    let body = Limited::new(body, len_max).collect();
    let body = match timeout(BODY_WAIT_MAX, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let reason = format!("the body has more than {len_max} bytes, or is broken off");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        Err(_) => {
            let reason = "the body did not arrive in time".to_owned();
            return Err((StatusCode::REQUEST_TIMEOUT, reason));
        }
    };
    let text = std::str::from_utf8(&body);
    let text = text.map_err(|_| (StatusCode::BAD_REQUEST, "not UTF-8".to_owned()))?;
    Ok(text.to_owned())
}

/// How long a change is to be in force: the value of `for`.
///
/// # Errors
/// A sentence for the client.
pub(super) fn lifetime(query: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(value) = only_parameter(query, "for")? else {
        return Ok(None);
    };
    let lifetime = humantime::parse_duration(value);
    let is_allowed = |lifetime: &Duration| !lifetime.is_zero() && *lifetime <= LIFETIME_MAX;
    let lifetime = lifetime.ok().filter(is_allowed);
    lifetime
        .map(Some)
        .ok_or_else(|| "for: write a time of at most 24h, such as 10m".to_owned())
}
