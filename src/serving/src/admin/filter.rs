//! `/log-filter`: shows the log filter in force, and replaces it (decision 56).

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::Body;
use tokio::time::Instant;

use super::access::{self, AccessRight};
use super::change::{BodyFault, lifetime, text_of};
use super::response::{AdminResponse, refused, text, wrong_method};
use super::visit::Visit;
use crate::log_filter::{FILTER_LEN_MAX, FilterState, LogControl, LogFilter};

const GET_RIGHT: AccessRight = AccessRight {
    verb: "get",
    path: "/kube-fanout/log-filter",
    subject: "the log filter",
};
const UPDATE_RIGHT: AccessRight = AccessRight {
    verb: "update",
    ..GET_RIGHT
};
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
    let invalid = |reason: String| (StatusCode::BAD_REQUEST, reason);
    let lifetime = lifetime(request.uri().query()).map_err(invalid)?;
    let filter = text_of(request.into_body(), FILTER_LEN_MAX).await?;
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
