//! Why an attempt came to nothing: what the reflector must know of it, and what people want to.

use std::fmt;

use http::Response;
use http::header::CONTENT_TYPE;

use super::FetchError;
use crate::decode::{ScanError, UpstreamStatus};
use crate::resource::Encoding;
use crate::upstream::client::SendError;
use crate::upstream::reflector::Failure;

/// What was asked of upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A list, or a page of one.
    List,
    /// A watch, streamed initial data among them.
    Watch,
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Watch => "watch",
        })
    }
}

/// Why bytes could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRejection {
    /// Not what a watch event or a list looks like.
    Unparsable,
    /// Longer than allowed.
    TooLong,
    /// No JSON, or JSON of another form than was asked for: protobuf, a `Table`. Not read any further.
    WrongContentType,
}

/// An attempt that failed, for those who tell people.
#[derive(Clone, Copy, Debug)]
pub struct FailureReport<'a> {
    /// What was asked.
    pub asked: RequestKind,
    /// What the reflector is told.
    pub failure: &'a Failure,
    /// What was wrong with the bytes, if it was they.
    pub rejection: Option<FrameRejection>,
    /// In words; empty where the status says it all.
    pub cause: &'a str,
}

/// An attempt that failed.
#[derive(Debug)]
pub(super) struct AttemptFailure {
    pub(super) failure: Failure,
    pub(super) rejection: Option<FrameRejection>,
    cause: String,
}

impl AttemptFailure {
    pub(super) const fn refused(status: UpstreamStatus) -> Self {
        Self {
            failure: Failure::Status(status),
            rejection: None,
            cause: String::new(),
        }
    }

    pub(super) fn cut(cause: impl Into<String>) -> Self {
        Self {
            failure: Failure::Transport,
            rejection: None,
            cause: cause.into(),
        }
    }

    pub(super) fn rejected(reason: FrameRejection, cause: impl Into<String>) -> Self {
        let failure = match reason {
            FrameRejection::TooLong => Failure::TooLong,
            FrameRejection::Unparsable | FrameRejection::WrongContentType => Failure::Protocol,
        };
        Self {
            failure,
            rejection: Some(reason),
            cause: cause.into(),
        }
    }

    pub(super) fn unparsable(error: &ScanError) -> Self {
        Self::rejected(FrameRejection::Unparsable, error.to_string())
    }

    pub(super) fn trouble(&self, asked: RequestKind) -> FailureReport<'_> {
        FailureReport {
            asked,
            failure: &self.failure,
            rejection: self.rejection,
            cause: &self.cause,
        }
    }

    /// Whether upstream has none of the forms that were asked for.
    pub(super) fn is_not_acceptable(&self) -> bool {
        matches!(&self.failure, Failure::Status(status) if status.code == 406)
    }
}

impl From<FetchError> for AttemptFailure {
    fn from(error: FetchError) -> Self {
        let is_saturated = matches!(error.0.downcast_ref(), Some(SendError::Saturated));
        let mut fault = Self::cut(error.0.to_string());
        if is_saturated {
            fault.failure = Failure::Saturated;
        }
        fault
    }
}

/// Refuses an answer that says of itself that it is in another encoding than was asked for. Servers that say nothing are believed to send what was asked for.
pub(super) fn check_content_type<B>(
    response: &Response<B>,
    encoding: Encoding,
) -> Result<(), AttemptFailure> {
    let Some(value) = response.headers().get(CONTENT_TYPE) else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    let mut parts = text.split(';').map(str::trim);
    let is_wanted = parts
        .next()
        .is_some_and(|essence| essence.eq_ignore_ascii_case(encoding.media_type()));
    let is_table = parts.any(|parameter| parameter.eq_ignore_ascii_case("as=Table"));
    if is_wanted && !is_table {
        return Ok(());
    }
    Err(AttemptFailure::rejected(
        FrameRejection::WrongContentType,
        format!(
            "content type {text:?} is not the {} that was asked for",
            encoding.as_str()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_if_they_say_nothing_or_json() {
        let accepted = |text: &str| {
            let response = Response::builder().header(CONTENT_TYPE, text).body(());
            check_content_type(&response.unwrap(), Encoding::Json).is_ok()
        };
        assert!(check_content_type(&Response::new(()), Encoding::Json).is_ok());
        for text in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json;stream=watch",
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        ] {
            assert!(accepted(text), "{text}");
        }
        for text in [
            "application/vnd.kubernetes.protobuf",
            "application/vnd.kubernetes.protobuf;stream=watch",
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            "application/json-patch+json",
            "application/cbor-seq",
            "text/html",
            "",
        ] {
            assert!(!accepted(text), "{text}");
        }
    }
}
