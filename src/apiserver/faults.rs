//! Faults on demand: which request or stream fails, and how. Pure decisions and counters; [`body`] carries out what
//! befalls a stream, the server the rest.

pub mod body;
pub mod nonsense;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::reviews::Review;
use super::route::ResourceVerb;
use crate::protocol::status::Status;
pub use nonsense::Nonsense;

/// The word for all kinds of reviews in orders.
const ALL_REVIEWS: &str = "reviews";
/// More armed faults than this are refused: tests arm a handful, and every request walks them.
const ARMED_COUNT_MAX: usize = 256;
/// Longest delay that may be ordered.
const DELAY_MS_MAX: u64 = 60_000;
/// Longest frame that may be injected.
const FRAME_LEN_MAX: usize = 256 << 20;

/// One order, as `POST /debug/faults` takes it, such as
/// `{"fault":{"cutWatch":{"afterBytes":700}},"resource":"pods","count":2}` or `{"fault":"compact"}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultOrder {
    /// What is to happen.
    pub fault: Fault,
    /// To which verb; all when missing. Faults of streams mean watches in any case.
    #[serde(default)]
    pub verb: Option<ResourceVerb>,
    /// To which resource, by plural name, or `reviews` for all reviews; all when missing.
    #[serde(default)]
    pub resource: Option<String>,
    /// To how many requests; 1 when missing.
    #[serde(default = "one")]
    pub count: u32,
}

/// What may be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Fault {
    /// A watch breaks off after so many bytes, in the middle of a frame.
    CutWatch {
        /// Bytes that still arrive.
        after_bytes: u64,
    },
    /// A watch carries a line that is no JSON behind its first frame.
    GarbageFrame,
    /// A watch carries one line of so many bytes behind its first frame.
    OversizedFrame {
        /// Bytes of the line.
        len: usize,
    },
    /// A request is refused.
    Refuse {
        /// 401, 403, 410, 429, 500 or 503.
        code: u16,
        /// For 429 and 503; 1 when missing.
        #[serde(default = "one")]
        retry_after_seconds: u32,
    },
    /// A request waits before it is looked at.
    Delay {
        /// Milliseconds.
        delay_ms: u64,
    },
    /// A request is answered, and its connection takes no more: GOAWAY, or `Connection: close`.
    CloseConnection,
    /// A review gets no answer: its connection, or its HTTP/2 stream, breaks off.
    BreakOff,
    /// A review is answered with nonsense instead.
    Nonsense(Nonsense),
    /// All open watches end cleanly, at once.
    EndWatches,
    /// History up to now is forgotten, at once: resuming from it is too old.
    Compact,
    /// All armed faults are forgotten, at once.
    Clear,
}

const fn one() -> u32 {
    1
}

/// What an order asks of the server right now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// Nothing: the fault waits for its requests.
    Armed,
    /// End the watches of a resource, or all.
    EndWatches(Option<String>),
    /// Forget the history of a resource, or of all.
    Compact(Option<String>),
}

/// An order that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// A status that no rule of the API server gives here.
    #[error("code {0} is none of 401, 403, 410, 429, 500, 503")]
    Code(u16),
    /// A delay or frame beyond its bound.
    #[error("{what} is more than {max}")]
    TooMuch {
        /// Delay or frame length.
        what: &'static str,
        /// The bound.
        max: u64,
    },
    /// Too many orders wait.
    #[error("{ARMED_COUNT_MAX} faults wait already")]
    Full,
}

/// What befalls one request, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFate {
    /// Wait first.
    pub delay: Option<Duration>,
    /// Then refuse.
    pub refusal: Option<Status>,
    /// Then let the connection take no more requests.
    pub close_connection: bool,
    /// Or do not answer, if it is a review.
    pub break_off: bool,
    /// Or answer with something else, if it is a review.
    pub nonsense: Option<Nonsense>,
    /// What befalls the stream, if it is a watch.
    pub stream: StreamFate,
}

/// What befalls one watch stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFate {
    /// Break off after so many bytes.
    pub cut_after: Option<u64>,
    /// Put a frame behind the first one.
    pub inject: Option<InjectedFrame>,
}

/// A frame that is no watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFrame {
    /// A line that is no JSON.
    Garbage,
    /// An event whose object is a string of so many bytes in all.
    Oversized(usize),
}

/// How often each kind of fault struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultCounts {
    /// Streams ordered to break off.
    pub cut: u64,
    /// Streams ordered to carry a foreign frame.
    pub injected: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests delayed.
    pub delayed: u64,
    /// Connections closed.
    pub closed: u64,
    /// Reviews without an answer.
    pub broken: u64,
    /// Reviews answered with nonsense.
    pub nonsense: u64,
    /// Orders to end watches.
    pub ended: u64,
    /// Orders to forget history.
    pub compacted: u64,
}

/// The armed faults and what they did so far.
#[derive(Debug, Default)]
pub struct Faults {
    armed: Vec<FaultOrder>,
    counts: FaultCounts,
}

impl Faults {
    /// Takes an order.
    ///
    /// # Errors
    /// Orders beyond a bound.
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
            Fault::Refuse { code, .. } if !matches!(code, 401 | 403 | 410 | 429 | 500 | 503) => {
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

    /// Decides about one request. Of each sort the oldest armed fault strikes.
    pub fn on_request(&mut self, verb: ResourceVerb, resource: &str) -> RequestFate {
        let mut fate = RequestFate::default();
        for order in &mut self.armed {
            if order.means(verb, resource) && fate.take(order.fault) {
                order.count -= 1;
            }
        }
        self.armed.retain(|order| order.count > 0);
        self.counts.add(&fate);
        fate
    }

    /// What struck so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }
}

impl FaultOrder {
    fn means(&self, verb: ResourceVerb, resource: &str) -> bool {
        let of_streams = matches!(
            self.fault,
            Fault::CutWatch { .. } | Fault::GarbageFrame | Fault::OversizedFrame { .. }
        );
        let of_reviews = matches!(self.fault, Fault::BreakOff | Fault::Nonsense(_));
        let is_review = Review::is_plural(resource);
        (!of_streams || verb == ResourceVerb::Watch)
            && (!of_reviews || is_review)
            && self.verb.is_none_or(|wanted| wanted == verb)
            && self
                .resource
                .as_deref()
                .is_none_or(|wanted| wanted == resource || (wanted == ALL_REVIEWS && is_review))
    }
}

impl RequestFate {
    /// Takes a fault unless one of its sort is taken already; says whether it did.
    fn take(&mut self, fault: Fault) -> bool {
        let stream = &mut self.stream;
        match fault {
            Fault::CutWatch { after_bytes } => put(&mut stream.cut_after, after_bytes),
            Fault::GarbageFrame => put(&mut stream.inject, InjectedFrame::Garbage),
            Fault::OversizedFrame { len } => put(&mut stream.inject, InjectedFrame::Oversized(len)),
            Fault::Refuse {
                code,
                retry_after_seconds,
            } => put(&mut self.refusal, refusal(code, retry_after_seconds)),
            Fault::Delay { delay_ms } => put(&mut self.delay, Duration::from_millis(delay_ms)),
            Fault::CloseConnection => !std::mem::replace(&mut self.close_connection, true),
            Fault::BreakOff => !std::mem::replace(&mut self.break_off, true),
            Fault::Nonsense(nonsense) => put(&mut self.nonsense, nonsense),
            Fault::EndWatches | Fault::Compact | Fault::Clear => false,
        }
    }
}

/// Fills an empty place; says whether it was empty.
fn put<T>(place: &mut Option<T>, value: T) -> bool {
    let empty = place.is_none();
    if empty {
        *place = Some(value);
    }
    empty
}

impl FaultCounts {
    fn add(&mut self, fate: &RequestFate) {
        self.cut += u64::from(fate.stream.cut_after.is_some());
        self.injected += u64::from(fate.stream.inject.is_some());
        self.refused += u64::from(fate.refusal.is_some());
        self.delayed += u64::from(fate.delay.is_some());
        self.closed += u64::from(fate.close_connection);
        self.broken += u64::from(fate.break_off);
        self.nonsense += u64::from(fate.nonsense.is_some());
    }
}

/// The words of docs/PROTOCOL.md §6 for the statuses that may be ordered.
fn refusal(code: u16, retry_after_seconds: u32) -> Status {
    let (reason, message, retry_after_seconds) = match code {
        401 => ("Unauthorized", "Unauthorized", 0),
        403 => ("Forbidden", "forbidden: fault ordered", 0),
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
