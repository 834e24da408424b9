//! Why an attempt failed: the failure that the reflector reacts to, and a description for people.

use std::fmt;

use http::Response;
use http::header::CONTENT_TYPE;
use strum::{IntoStaticStr, VariantArray};

use super::fetch::FetchError;
#[cfg(feature = "client")]
use crate::client::SendError;
use crate::decode::{ScanError, UpstreamStatus};
use crate::reflector::Failure;
use crate::resource::{Encoding, ResourceVersion};

/// The kind of an upstream request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A list, or a page of one.
    List,
    /// A watch, including one that starts with streamed initial data.
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

/// Why received bytes could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FrameRejection {
    /// Not a valid watch event or list.
    #[strum(serialize = "malformed")]
    Unparsable,
    /// Longer than allowed.
    TooLong,
    /// Another media type or another form than the requested one, such as protobuf or a `Table`. The body is not read.
    WrongContentType,
}

/// A failed attempt, as reported to a `DriverRecorder`.
#[derive(Clone, Copy, Debug)]
pub struct FailureReport<'a> {
    /// The kind of the failed request.
    pub asked: RequestKind,
    /// The failure, as the reflector gets it.
    pub failure: &'a Failure,
    /// Why the received bytes were rejected, if they were.
    pub rejection: Option<FrameRejection>,
    /// A description; empty if the status in `failure` says everything.
    pub cause: &'a str,
}

/// A failed attempt, with what a log line needs beyond the reflector's [`Failure`].
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

    pub(super) fn transport(cause: impl Into<String>) -> Self {
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

    /// A version that no server has given out, so that the number must be damaged.
    pub(super) fn far_ahead(version: ResourceVersion) -> Self {
        let cause = format!("version {version} is absurdly far ahead of the last one");
        Self::rejected(FrameRejection::Unparsable, cause)
    }

    /// Initial data whose end does not come.
    pub(super) fn endless(cause: impl Into<String>) -> Self {
        Self {
            failure: Failure::Protocol,
            rejection: None,
            cause: cause.into(),
        }
    }

    /// An event that arrived after newer ones, and whose change is missing.
    pub(super) fn unordered(cause: impl Into<String>) -> Self {
        Self {
            failure: Failure::Unordered,
            rejection: None,
            cause: cause.into(),
        }
    }

    pub(super) fn unparsable(error: &ScanError) -> Self {
        Self::rejected(FrameRejection::Unparsable, error.to_string())
    }

    pub(super) fn report(&self, kind: RequestKind) -> FailureReport<'_> {
        FailureReport {
            asked: kind,
            failure: &self.failure,
            rejection: self.rejection,
            cause: &self.cause,
        }
    }

    /// Whether upstream supports none of the accepted media types.
    pub(super) fn is_not_acceptable(&self) -> bool {
        matches!(&self.failure, Failure::Status(status) if status.code == 406)
    }
}

impl From<FetchError> for AttemptFailure {
    fn from(error: FetchError) -> Self {
        let fault = Self::transport(error.0.to_string());
        if let Some(failure) = error.0.downcast_ref::<Failure>() {
            return Self {
                failure: failure.clone(),
                ..fault
            };
        }
        // Other implementations of `Fetch` have no limit of connections to report.
        #[cfg(feature = "client")]
        if matches!(error.0.downcast_ref(), Some(SendError::Saturated)) {
            return Self {
                failure: Failure::Saturated,
                ..fault
            };
        }
        fault
    }
}

/// Rejects a response whose Content-Type is not the requested encoding. A response without the header is taken to be in the
/// requested encoding.
pub(super) fn check_content_type<B>(
    response: &Response<B>,
    encoding: Encoding,
) -> Result<(), AttemptFailure> {
    let Some(value) = response.headers().get(CONTENT_TYPE) else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    let mut parts = text.split(';').map(str::trim);
    let is_requested = parts
        .next()
        .is_some_and(|essence| essence.eq_ignore_ascii_case(encoding.media_type()));
    let is_table = parts.any(|parameter| parameter.eq_ignore_ascii_case("as=Table"));
    if is_requested && !is_table {
        return Ok(());
    }
    Err(AttemptFailure::rejected(
        FrameRejection::WrongContentType,
        format!(
            "content type {text:?} is not the requested {}",
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
