//! Faults on demand: which request or stream fails, and how. This module only decides and counts; [`body`] applies the faults of
//! streams, [`nonsense`] makes invalid responses to reviews, and the server applies the rest.

pub mod body;
pub mod nonsense;

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use serde::{Deserialize, Serialize};

use super::review_kinds::Review;
use crate::protocol::request::Verb;
use crate::protocol::status::Status;
use crate::resource::Encoding;
pub use nonsense::Nonsense;

/// Stands for all kinds of reviews in an order's `resource`.
const ALL_REVIEWS: &str = "reviews";
/// Maximum number of armed faults: every request goes through all of them, and tests arm only a handful.
const ARMED_COUNT_MAX: usize = 256;
/// Maximum delay of a request, in milliseconds.
const DELAY_MS_MAX: u64 = 60_000;
/// Maximum length of an injected frame or a review's response, in bytes.
const FRAME_LEN_MAX: usize = 256 << 20;

/// An order of a fault, which is the body of `POST /debug/faults`, such as
/// `{"fault":{"cutWatch":{"afterBytes":700}},"resource":"pods","count":2}` or `{"fault":"compact"}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultOrder {
    /// The fault.
    pub fault: Fault,
    /// The verb of the affected requests; all if absent. Faults of streams affect watches only.
    #[serde(default)]
    pub verb: Option<Verb>,
    /// The resource of the affected requests by plural name, or `reviews` for all reviews; all if absent.
    #[serde(default)]
    pub resource: Option<String>,
    /// The number of affected requests; 1 if absent.
    #[serde(default = "one")]
    pub count: u32,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Fault {
    /// A watch is aborted after this many bytes, possibly in the middle of a frame.
    CutWatch {
        /// Bytes that are sent before the abort.
        after_bytes: u64,
    },
    /// A watch sends a line that is not JSON after its first frame.
    GarbageFrame,
    /// A watch sends a line of this length after its first frame.
    OversizedFrame {
        /// Length of the line in bytes.
        len: usize,
    },
    /// A watch is accepted, and ends without a frame.
    EmptyWatch,
    /// A watch is accepted, and ends with an ERROR event, which is its only frame.
    ErrorEvent {
        /// Status code, as for a refusal.
        code: u16,
        /// Whether the event has the code, and not only its reason.
        is_coded: bool,
    },
    /// A request is answered with an error.
    Refuse {
        /// Status code: 400, 401, 403, 404, 405, 406, 410, 422, 429, 500, 502, 503 or 504.
        code: u16,
        /// `Retry-After` of 429 and 503; 1 if absent.
        #[serde(default = "one")]
        retry_after_seconds: u32,
    },
    /// A request waits before it is answered.
    Delay {
        /// Length of the delay in milliseconds.
        delay_ms: u64,
    },
    /// A request is answered, but its connection accepts no more requests: GOAWAY, or `Connection: close`.
    CloseConnection,
    /// A review is not answered: its connection, or its HTTP/2 stream, is aborted.
    BreakOff,
    /// A review gets an invalid response.
    Nonsense(Nonsense),
    /// All open watches end cleanly, immediately.
    EndWatches,
    /// The history up to now is discarded immediately: to resume a watch from it is too old.
    Compact,
    /// All armed faults are removed immediately.
    Clear,
}

/// The status codes that may be ordered.
const CODES: [u16; 13] = [
    400, 401, 403, 404, 405, 406, 410, 422, 429, 500, 502, 503, 504,
];

const fn one() -> u32 {
    1
}

/// What the server has to do immediately to carry out an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// Nothing: the fault is armed until matching requests arrive, or armed faults were cleared.
    Armed,
    /// End the open watches of a resource, or of all resources.
    EndWatches(Option<String>),
    /// Discard the history of a resource, or of all resources.
    Compact(Option<String>),
}

/// Why an order is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// A status code that is not supported.
    #[error("code {0} is not one of {CODES:?}")]
    Code(u16),
    /// A delay or a frame length exceeds its maximum.
    #[error("{what} is more than {max}")]
    TooMuch {
        /// Name of the field: `delayMs` or `len`.
        what: &'static str,
        /// The maximum.
        max: u64,
    },
    /// Too many faults are armed.
    #[error("{ARMED_COUNT_MAX} faults are armed already")]
    Full,
}

/// The faults of one request, in the order in which they are applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFate {
    /// Wait before anything else.
    pub delay: Option<Duration>,
    /// Answer with this error.
    pub refusal: Option<Status>,
    /// Make the connection accept no more requests.
    pub close_connection: bool,
    /// Abort instead of answering; reviews only.
    pub break_off: bool,
    /// Answer with this invalid response; reviews only.
    pub nonsense: Option<Nonsense>,
    /// The whole of what the stream sends; watches only.
    pub only: Option<OnlyFrame>,
    /// The faults of the stream; watches only.
    pub stream: StreamFate,
}

/// What a watch sends before it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnlyFrame {
    /// Not even one frame.
    Nothing,
    /// An ERROR event.
    Error(Status),
}

impl OnlyFrame {
    /// The body of a watch whose response has this media type.
    pub(super) fn bytes(&self, content_type: Option<&HeaderValue>) -> Bytes {
        let is_protobuf = content_type
            .is_some_and(|value| value.as_bytes() == Encoding::Protobuf.stream_type().as_bytes());
        let encoding = if is_protobuf {
            Encoding::Protobuf
        } else {
            Encoding::Json
        };
        match self {
            Self::Nothing => Bytes::new(),
            Self::Error(status) => status.error_event(encoding),
        }
    }
}

/// The faults of one watch stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFate {
    /// Abort after this many bytes.
    pub cut_after: Option<u64>,
    /// Insert this frame after the first one.
    pub inject: Option<InjectedFrame>,
}

/// A frame that is not a valid watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFrame {
    /// A line that is not JSON.
    Garbage,
    /// An event whose object is a string. The length is that of the whole line, in bytes.
    Oversized(usize),
}

/// How often each kind of fault has been applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultCounts {
    /// Watches with an ordered abort.
    pub cut: u64,
    /// Watches with an injected frame, or that ended with their first frame or without one.
    pub injected: u64,
    /// Requests answered with an ordered error.
    pub refused: u64,
    /// Requests delayed.
    pub delayed: u64,
    /// Requests after which their connection was closed.
    pub closed: u64,
    /// Reviews that were aborted.
    pub broken: u64,
    /// Reviews with an invalid response.
    pub nonsense: u64,
    /// Orders to end watches.
    pub ended: u64,
    /// Orders to discard history.
    pub compacted: u64,
}

/// The armed faults, and the counters.
#[derive(Debug, Default)]
pub struct Faults {
    armed: Vec<FaultOrder>,
    counts: FaultCounts,
}

impl Faults {
    /// Accepts an order: arms its fault, or returns what has to be done immediately.
    ///
    /// # Errors
    /// [`FaultError`] if the order is not supported or exceeds a bound.
    pub fn order(&mut self, order: FaultOrder) -> Result<FaultEffect, FaultError> {
        let too_much = |what, max| Err(FaultError::TooMuch { what, max });
        match order.fault {
            Fault::EndWatches => {
                self.counts.ended += 1;
                return Ok(FaultEffect::EndWatches(order.resource));
            }
            Fault::Compact => {
                self.counts.compacted += 1;
                return Ok(FaultEffect::Compact(order.resource));
            }
            Fault::Clear => {
                self.armed.clear();
                return Ok(FaultEffect::Armed);
            }
            Fault::Refuse { code, .. } | Fault::ErrorEvent { code, .. }
                if !CODES.contains(&code) =>
            {
                return Err(FaultError::Code(code));
            }
            Fault::OversizedFrame { len } | Fault::Nonsense(Nonsense::Oversized { len })
                if len > FRAME_LEN_MAX =>
            {
                return too_much("len", FRAME_LEN_MAX as u64);
            }
            Fault::Delay { delay_ms } if delay_ms > DELAY_MS_MAX => {
                return too_much("delayMs", DELAY_MS_MAX);
            }
            _ if self.armed.len() >= ARMED_COUNT_MAX => return Err(FaultError::Full),
            Fault::CutWatch { .. }
            | Fault::GarbageFrame
            | Fault::OversizedFrame { .. }
            | Fault::EmptyWatch
            | Fault::ErrorEvent { .. }
            | Fault::Refuse { .. }
            | Fault::Delay { .. }
            | Fault::CloseConnection
            | Fault::BreakOff
            | Fault::Nonsense(_) => {}
        }
        if order.count > 0 {
            self.armed.push(order);
        }
        Ok(FaultEffect::Armed)
    }

    /// Decides the faults of one request: of each kind of fault the oldest armed one that matches.
    pub fn on_request(&mut self, verb: Verb, resource: &str) -> RequestFate {
        let mut fate = RequestFate::default();
        for order in &mut self.armed {
            if order.matches(verb, resource) && fate.add(order.fault) {
                order.count -= 1;
            }
        }
        self.armed.retain(|order| order.count > 0);
        self.counts.add(&fate);
        fate
    }

    /// The counters since the start.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }
}

impl FaultOrder {
    fn matches(&self, verb: Verb, resource: &str) -> bool {
        let is_for_streams = matches!(
            self.fault,
            Fault::CutWatch { .. }
                | Fault::GarbageFrame
                | Fault::OversizedFrame { .. }
                | Fault::EmptyWatch
                | Fault::ErrorEvent { .. }
        );
        let is_for_reviews = matches!(self.fault, Fault::BreakOff | Fault::Nonsense(_));
        let is_review = Review::is_plural(resource);
        (!is_for_streams || verb == Verb::Watch)
            && (!is_for_reviews || is_review)
            && self.verb.is_none_or(|ordered| ordered == verb)
            && self
                .resource
                .as_deref()
                .is_none_or(|ordered| ordered == resource || (ordered == ALL_REVIEWS && is_review))
    }
}

impl RequestFate {
    /// Adds a fault unless the request has one of this kind already. Returns whether it was added.
    fn add(&mut self, fault: Fault) -> bool {
        let stream = &mut self.stream;
        match fault {
            Fault::CutWatch { after_bytes } => fill(&mut stream.cut_after, after_bytes),
            Fault::GarbageFrame => fill(&mut stream.inject, InjectedFrame::Garbage),
            Fault::OversizedFrame { len } => {
                fill(&mut stream.inject, InjectedFrame::Oversized(len))
            }
            Fault::EmptyWatch => fill(&mut self.only, OnlyFrame::Nothing),
            Fault::ErrorEvent { code, is_coded } => {
                let mut status = refusal(code, 0);
                if !is_coded {
                    status.code = 0;
                }
                fill(&mut self.only, OnlyFrame::Error(status))
            }
            Fault::Refuse {
                code,
                retry_after_seconds,
            } => fill(&mut self.refusal, refusal(code, retry_after_seconds)),
            Fault::Delay { delay_ms } => fill(&mut self.delay, Duration::from_millis(delay_ms)),
            Fault::CloseConnection => !std::mem::replace(&mut self.close_connection, true),
            Fault::BreakOff => !std::mem::replace(&mut self.break_off, true),
            Fault::Nonsense(nonsense) => fill(&mut self.nonsense, nonsense),
            Fault::EndWatches | Fault::Compact | Fault::Clear => false,
        }
    }
}

/// Sets an option that is `None`. Returns whether it was `None`.
fn fill<T>(option: &mut Option<T>, value: T) -> bool {
    let is_empty = option.is_none();
    if is_empty {
        *option = Some(value);
    }
    is_empty
}

impl FaultCounts {
    fn add(&mut self, fate: &RequestFate) {
        self.cut += u64::from(fate.stream.cut_after.is_some());
        self.injected += u64::from(fate.stream.inject.is_some() || fate.only.is_some());
        self.refused += u64::from(fate.refusal.is_some());
        self.delayed += u64::from(fate.delay.is_some());
        self.closed += u64::from(fate.close_connection);
        self.broken += u64::from(fate.break_off);
        self.nonsense += u64::from(fate.nonsense.is_some());
    }
}

/// The `Status` of each code that may be ordered, with the messages of docs/PROTOCOL.md §6 where there is one.
fn refusal(code: u16, retry_after_seconds: u32) -> Status {
    let (reason, message, retry_after_seconds) = match code {
        400 => ("BadRequest", "fault ordered", 0),
        401 => ("Unauthorized", "Unauthorized", 0),
        403 => ("Forbidden", "forbidden: fault ordered", 0),
        404 => (
            "NotFound",
            "the server could not find the requested resource",
            0,
        ),
        405 => ("MethodNotAllowed", "fault ordered", 0),
        406 => ("NotAcceptable", "fault ordered", 0),
        422 => ("Invalid", "fault ordered", 0),
        410 => (
            "Expired",
            "The resourceVersion for the provided watch is too old.",
            0,
        ),
        429 => (
            "TooManyRequests",
            "storage is (re)initializing",
            retry_after_seconds,
        ),
        503 => (
            "ServiceUnavailable",
            "apiserver is shutting down",
            retry_after_seconds,
        ),
        504 => ("Timeout", "Timeout: fault ordered", 0),
        _ => ("InternalError", "Internal error occurred: fault ordered", 0),
    };
    let status = Status::new(code, reason, message);
    match retry_after_seconds {
        0 => status,
        seconds => status.retry_in(seconds),
    }
}

#[cfg(test)]
mod tests;
