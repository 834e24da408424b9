//! The time that a list may take until its response starts (docs/PROTOCOL.md §2.1, §3.11).

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use crate::protocol::request::{Query, Verb};
use crate::protocol::status::NO_CACHE;

/// kube-apiserver's limit for requests that are not watches.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// The timeout of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestTimeout {
    /// The response must start within this time.
    Until(Duration),
    /// None: watches have timeouts of their own.
    Endless,
    /// `timeout` is not certain to be a duration that Go accepts, so upstream has to validate it.
    Unknown,
}

impl RequestTimeout {
    pub(super) fn of(query: &Query, verb: Verb) -> Self {
        if verb == Verb::Watch {
            return Self::Endless;
        }
        match query.first("timeout").unwrap_or_default() {
            "" | "0" => Self::Until(LIMIT),
            text => go_duration(text).map_or(Self::Unknown, |requested| {
                let shorter =
                    Some(requested).filter(|requested| !requested.is_zero() && *requested < LIMIT);
                Self::Until(shorter.unwrap_or(LIMIT))
            }),
        }
    }
}

/// Go's `time.ParseDuration`, limited to the forms that clients send: a whole number and a unit.
fn go_duration(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text.strip_suffix(unit)?.parse().ok()?;
    match unit {
        "ns" => Some(Duration::from_nanos(number)),
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        "h" => Some(Duration::from_secs(number.checked_mul(3600)?)),
        _ => None,
    }
    // Go counts nanoseconds in 63 bits and rejects longer durations.
    .filter(|duration| i64::try_from(duration.as_nanos()).is_ok())
}

/// The output of `work`; `None` if it is not there at the deadline. Dropping work for this client alone cancels it; shared work continues for
/// the other clients. Callers pin `work`, so that it is not copied into this future.
pub(super) async fn before_deadline<T>(
    deadline: Option<Instant>,
    work: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    match deadline {
        Some(deadline) => timeout_at(deadline, work).await.ok(),
        None => Some(work.await),
    }
}

/// The response of kube-apiserver's timeout filter: a Status without kind and version, as plain text.
pub(super) fn timeout_response() -> Response<Bytes> {
    const BODY: &str = "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete within the allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n";
    let mut response = Response::new(Bytes::from_static(BODY.as_bytes()));
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    let headers = response.headers_mut();
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, text);
    headers.insert(CACHE_CONTROL, NO_CACHE);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_minute_or_its_timeout() {
        let until = |millis| RequestTimeout::Until(Duration::from_millis(millis));
        for (query, expected) in [
            ("", until(60_000)),
            ("timeout=", until(60_000)),
            ("timeout=0", until(60_000)),
            ("timeout=0s", until(60_000)),
            ("timeout=5s", until(5_000)),
            ("timeout=250ms", until(250)),
            ("timeout=2m", until(60_000)),
            ("timeout=5", RequestTimeout::Unknown),
            ("timeout=-5s", RequestTimeout::Unknown),
            ("timeout=1.5s", RequestTimeout::Unknown),
            ("timeout=99999999999999999h", RequestTimeout::Unknown),
            ("timeout=s", RequestTimeout::Unknown),
        ] {
            let query = Query::parse(Some(query));
            assert_eq!(
                RequestTimeout::of(&query, Verb::List),
                expected,
                "{query:?}"
            );
            assert_eq!(
                RequestTimeout::of(&query, Verb::Watch),
                RequestTimeout::Endless
            );
        }
    }
}
