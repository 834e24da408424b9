//! `/log-filter`: shows the log filter in force, and replaces it (decision 56).

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, timeout};

use super::access::{self, AccessRight};
use super::response::{AdminResponse, only_parameter, refused, text, wrong_method};
use super::visit::Visit;
use crate::log_filter::{FILTER_LEN_MAX, FilterState, LogControl, LogFilter};

/// Why a body cannot be read.
type BodyFault = Box<dyn Error + Send + Sync>;

const GET_RIGHT: AccessRight = AccessRight {
    verb: "get",
    path: "/kube-fanout/log-filter",
    subject: "the log filter",
};
const UPDATE_RIGHT: AccessRight = AccessRight {
    verb: "update",
    ..GET_RIGHT
};
/// A client that sends a few hundred bytes has sent them by then.
const BODY_WAIT_MAX: Duration = Duration::from_secs(10);
/// A filter that is needed for longer belongs into the settings.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Answers a request for `/log-filter`.
pub(super) async fn answer<B>(
    request: Request<B>,
    log: &LogControl,
    visit: &mut Visit,
) -> AdminResponse
where
    B: Body<Data = Bytes>,
    B::Error: Into<BodyFault>,
{
    let right = match *request.method() {
        Method::GET | Method::HEAD => &GET_RIGHT,
        Method::PUT => &UPDATE_RIGHT,
        _ => return wrong_method("GET, HEAD, PUT"),
    };
    let by = match access::check(visit, right).await {
        Ok(by) => by,
        Err(refusal) => return refused(refusal),
    };
    if request.method() == Method::PUT
        && let Err((code, reason)) = change(request, log, &by).await
    {
        return text(code, format!("{reason}\n"));
    }
    text(StatusCode::OK, describe(&log.state()))
}

/// Puts the filter of the body in force; an empty body stands for the filter of the settings.
async fn change<B>(
    request: Request<B>,
    log: &LogControl,
    by: &str,
) -> Result<(), (StatusCode, String)>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BodyFault>,
{
    let lifetime = lifetime(request.uri().query());
    let lifetime = lifetime.map_err(|reason| (StatusCode::BAD_REQUEST, reason))?;
    let body = Limited::new(request.into_body(), FILTER_LEN_MAX).collect();
    let body = match timeout(BODY_WAIT_MAX, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let reason = format!("the body has more than {FILTER_LEN_MAX} bytes, or is broken off");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        Err(_) => {
            let reason = "the body did not arrive in time".to_owned();
            return Err((StatusCode::REQUEST_TIMEOUT, reason));
        }
    };
    let invalid = |reason: String| (StatusCode::BAD_REQUEST, reason);
    let filter = std::str::from_utf8(&body).map_err(|_| invalid("not UTF-8".to_owned()))?;
    match filter.trim() {
        "" if lifetime.is_some() => Err(invalid("?for= needs a filter in the body".to_owned())),
        "" => {
            log.reset(by);
            Ok(())
        }
        filter => {
            let filter: LogFilter = filter
                .parse()
                .map_err(|error| invalid(format!("{error}")))?;
            log.change(filter, lifetime, by);
            Ok(())
        }
    }
}

/// How long the filter is to be in force: the value of `for`.
fn lifetime(query: Option<&str>) -> Result<Option<Duration>, String> {
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

/// The filter in force, and on a second line what follows it.
fn describe(state: &FilterState) -> String {
    let FilterState {
        configured,
        current,
        until,
    } = state;
    match until {
        Some(until) => {
            let remaining = until.saturating_duration_since(Instant::now());
            let seconds = remaining.as_secs_f64().ceil();
            format!("{current}\nin {seconds} s: {configured}\n")
        }
        None if current != configured => format!("{current}\nconfigured: {configured}\n"),
        None => format!("{current}\n"),
    }
}

#[cfg(test)]
mod tests;
