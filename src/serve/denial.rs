//! What a refused caller gets: the API server's responses, except that a watch that resumes from a version is asked to try again where the
//! caller could not be reviewed.

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

/// A random range in seconds, so that clients that were refused together do not come back together.
const RETRY_SECONDS: std::ops::Range<f64> = 1.0..5.0;

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
    /// The response to this refusal. Where upstream has to decide, that is 401.
    pub(super) fn of(refusal: &CallerRefusal, request: &ClientRequest) -> Self {
        let is_resumed = request.info.resumes_watch();
        let (label, text) = match refusal {
            CallerRefusal::Unverified | CallerRefusal::Undecided { .. } if is_resumed => {
                (AuthRefusal::Failed, DenialText::Again(unreviewed()))
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
                let headers = response.headers_mut();
                headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
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
fn unreviewed() -> Status {
    let seconds = RETRY_SECONDS.start + (RETRY_SECONDS.end - RETRY_SECONDS.start) * fraction();
    let seconds = std::time::Duration::from_secs_f64(seconds).as_secs();
    Status::too_many_requests(
        "the caller cannot be reviewed now, please try again later",
        u32::try_from(seconds).unwrap_or(1),
    )
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
