//! What a refused caller gets: the API server's responses, except that a watch that resumes from a version is asked to try again where the
//! caller could not be reviewed.

use std::time::Duration;

use bytes::Bytes;
use http::header::X_CONTENT_TYPE_OPTIONS;
use http::{HeaderValue, Response};

use super::client_request::ClientRequest;
use super::record::response_status;
use crate::audit::event::ResponseStatus;
use crate::auth::access::{Access, ResourceAccess};
use crate::auth::caller::CallerRefusal;
use crate::metrics::AuthRefusal;
use crate::protocol::status::{ForbiddenAccess, PlainText, Status, StatusForm};
use crate::resource::{Gvr, fraction};

/// Bounds of the longest time after which a caller who could not be reviewed is asked to come again: that time is how long reviews have been
/// failing. client-go waits that long within the request, up to ten times, and its own back-off ends at 30 s, too.
const RETRY_MAX: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(30);
/// The shortest time is this part of the longest. Between the two it is random, so that clients that were refused together do not come back
/// together.
const RETRY_SHARE: f64 = 0.2;

/// The response to a request whose caller is refused.
pub(super) struct DenialResponse {
    pub(super) label: AuthRefusal,
    text: DenialText,
}

enum DenialText {
    /// In the form that the client accepts; upstream responds if the client accepts none.
    Status(Status),
    /// As [`Status`](Self::Status), but never sniffed.
    Unsniffed(Status),
    /// 429, in the default form if the client accepts none: upstream cannot be asked.
    Again(Status),
    Plain(PlainText),
}

impl DenialResponse {
    /// The response to this refusal, if reviews have been failing for `outage`. Where upstream has to decide, that is 401.
    pub(super) fn of(refusal: &CallerRefusal, request: &ClientRequest, outage: Duration) -> Self {
        let is_resumed = request.info.resumes_watch();
        let (label, text) = match refusal {
            CallerRefusal::Unverified | CallerRefusal::Undecided { .. } if is_resumed => {
                let text = "the caller cannot be reviewed now, please try again later";
                (AuthRefusal::Failed, DenialText::Again(again(text, outage)))
            }
            CallerRefusal::Busy => {
                let text = "too many callers wait to be reviewed, please try again later";
                (
                    AuthRefusal::Failed,
                    DenialText::Again(again(text, Duration::ZERO)),
                )
            }
            CallerRefusal::Forward | CallerRefusal::Unauthorized | CallerRefusal::Unverified => {
                let status = Status::unauthorized();
                (AuthRefusal::Unauthorized, DenialText::Status(status))
            }
            CallerRefusal::Forbidden {
                user,
                access,
                reason,
            } => {
                let status = forbidden(&user.name, access, reason);
                (AuthRefusal::Forbidden, DenialText::Status(status))
            }
            CallerRefusal::BadRequest { message } => {
                let status = Status::bad_request(message.as_str());
                (AuthRefusal::Failed, DenialText::Unsniffed(status))
            }
            CallerRefusal::Failed { message } | CallerRefusal::Undecided { message } => {
                let target = request.http.uri().path_and_query();
                let target = target.map_or("/", |target| target.as_str());
                let text = PlainText::authorizer_failed(target, message);
                (AuthRefusal::Failed, DenialText::Plain(text))
            }
        };
        Self { label, text }
    }

    /// The response; `None` if only upstream can write it, because the client accepts no form that the gateway writes.
    pub(super) fn to_response(&self, form: Option<StatusForm>) -> Option<Response<Bytes>> {
        Some(match &self.text {
            DenialText::Status(status) => status.to_response_in(form?),
            DenialText::Unsniffed(status) => {
                let mut response = status.to_response_in(form?);
                response
                    .headers_mut()
                    .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                response
            }
            DenialText::Again(status) => status.to_response_in(form.unwrap_or_default()),
            DenialText::Plain(text) => text.to_response(),
        })
    }

    /// The response in the audit log.
    pub(super) fn recorded(&self) -> ResponseStatus {
        match &self.text {
            DenialText::Status(status)
            | DenialText::Unsniffed(status)
            | DenialText::Again(status) => response_status(status),
            // Plain text has no Status.
            DenialText::Plain(_) => ResponseStatus::of_code(500),
        }
    }
}

/// 429 where the API server would respond with 401 or 500, after which client-go and others would list (docs/PROTOCOL.md §6.8).
fn again(text: &str, outage: Duration) -> Status {
    let seconds = retry_after(outage, fraction()).as_secs();
    Status::too_many_requests(text, u32::try_from(seconds).unwrap_or(1))
}

/// When to come again; `fraction` is from zero to one.
fn retry_after(outage: Duration, fraction: f64) -> Duration {
    outage
        .clamp(*RETRY_MAX.start(), *RETRY_MAX.end())
        .mul_f64(RETRY_SHARE + (1.0 - RETRY_SHARE) * fraction)
}

/// The API server's Status for a denied access.
fn forbidden(user: &str, access: &Access, reason: &str) -> Status {
    match access {
        Access::Path { verb, path } => Status::forbidden_path(user, verb, path, reason),
        Access::Resource(ResourceAccess {
            verb,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
            ..
        }) => Status::forbidden(&ForbiddenAccess {
            user,
            verb,
            resource: &Gvr::new(group, version, resource),
            subresource,
            namespace,
            name,
            reason,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_grows_with_the_length_of_a_review_outage() {
        let seconds = |outage| {
            let outage = Duration::from_secs(outage);
            let retry = |fraction| retry_after(outage, fraction).as_secs();
            (retry(0.0), retry(0.999_999))
        };
        assert_eq!(seconds(0), (1, 4));
        assert_eq!(seconds(10), (2, 9));
        assert_eq!(seconds(30), (6, 29));
        assert_eq!(seconds(86_400), (6, 29), "bounded");
    }
}
