//! `/serving`: shows the serving rules, and puts others in force for a while (decision 61).

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::Body;
use tokio::time::Instant;

use super::access::{self, AccessRight};
use super::change::{BodyFault, lifetime, text_of};
use super::response::{AdminResponse, refused, reply, text, wrong_method};
use super::visit::Visit;
use crate::config::{RULES_LEN_MAX, ServingRules};
use crate::serving_control::{ServingControl, ServingState};

const GET_RIGHT: AccessRight = AccessRight {
    verb: "get",
    path: "/kube-fanout/serving",
    subject: "the serving rules",
};
const UPDATE_RIGHT: AccessRight = AccessRight {
    verb: "update",
    ..GET_RIGHT
};

/// Answers a request for `/serving`.
pub(super) async fn answer<B>(
    request: Request<B>,
    serving: &ServingControl,
    visit: &mut Visit,
) -> AdminResponse
where
    B: Body<Data = Bytes>,
    B::Error: Into<BodyFault>,
{
    let right = match *request.method() {
        Method::GET | Method::HEAD => &GET_RIGHT,
        Method::PUT | Method::DELETE => &UPDATE_RIGHT,
        _ => return wrong_method("GET, HEAD, PUT, DELETE"),
    };
    let by = match access::check(visit, right).await {
        Ok(by) => by,
        Err(refusal) => return refused(refusal),
    };
    match *request.method() {
        Method::PUT => {
            if let Err((code, reason)) = change(request, serving, &by).await {
                return text(code, format!("{reason}\n"));
            }
        }
        Method::DELETE => serving.reset(&by),
        _ => {}
    }
    reply(
        StatusCode::OK,
        "application/json",
        describe(&serving.state()),
    )
}

/// Puts the rules of the body in force for the time of `for`. A change without an end belongs into the settings.
async fn change<B>(
    request: Request<B>,
    serving: &ServingControl,
    by: &str,
) -> Result<(), (StatusCode, String)>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BodyFault>,
{
    let invalid = |reason: String| (StatusCode::BAD_REQUEST, reason);
    let lifetime = lifetime(request.uri().query()).map_err(invalid)?;
    let Some(lifetime) = lifetime else {
        let reason =
            "say how long: ?for=10m, at most 24h; rules without an end belong into the settings";
        return Err(invalid(reason.to_owned()));
    };
    let body = text_of(request.into_body(), RULES_LEN_MAX).await?;
    if body.trim().is_empty() {
        return Err(invalid(
            "the body holds no rules; DELETE ends those of the admin port".to_owned(),
        ));
    }
    let rules: ServingRules = body.parse().map_err(|error| invalid(format!("{error}")))?;
    serving.change(rules, lifetime, by);
    Ok(())
}

/// The rules in force, those of the settings, and in how many seconds these are in force again.
fn describe(state: &ServingState) -> String {
    let left = state.temporary.as_ref().map(|(_, until)| {
        let left = until.saturating_duration_since(Instant::now());
        left.as_secs_f64().ceil()
    });
    let document = serde_json::json!({
        "current": state.current(),
        "configured": state.configured,
        "secondsLeft": left,
    });
    format!("{document}\n")
}

#[cfg(test)]
mod tests;
