//! Faults on demand: which request or stream fails, and how. `stream` breaks watches, [`nonsense`] makes answers to reviews that
//! no API server gives; the server applies the rest.

pub mod nonsense;
pub(super) mod stream;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::Verb;
use super::reviews::Review;
use super::status::{Details, Status};
pub use nonsense::Nonsense;

/// Stands for all reviews in an order's resource.
const ALL_REVIEWS: &str = "reviews";
/// Tests arm a handful, and every request goes through all of them.
const ARMED_MAX: usize = 256;
const DELAY_MS_MAX: u64 = 60_000;
const FRAME_LEN_MAX: usize = 256 << 20;
const CODES: [u16; 13] = [
    400, 401, 403, 404, 405, 406, 410, 422, 429, 500, 502, 503, 504,
];

/// An order of a fault, which is also the body of `POST /debug/faults`:
/// `{"fault":{"cutWatch":{"afterBytes":700}},"resource":"pods","count":2}`, `{"fault":"compact"}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultOrder {
    /// The fault.
    pub fault: Fault,
    /// The verb of the requests that it strikes; any if absent. Faults of streams strike watches only.
    #[serde(default)]
    pub verb: Option<Verb>,
    /// The plural name of their resource, or `reviews`; any if absent.
    #[serde(default)]
    pub resource: Option<String>,
    /// How many requests it strikes; 1 if absent.
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
    /// A watch breaks off after this many bytes, possibly in the middle of a line.
    CutWatch {
        /// Bytes before the break.
        after_bytes: u64,
    },
    /// A watch sends a line that is no JSON after its first one.
    GarbageFrame,
    /// A watch sends a line of this length after its first one.
    OversizedFrame {
        /// Length in bytes.
        len: usize,
    },
    /// A watch is answered with 200 and ends at once.
    EmptyWatch,
    /// A watch is answered with 200 and an ERROR event.
    ErrorEvent {
        /// Status code.
        code: u16,
        /// Whether the event has the code, and not only its reason.
        is_coded: bool,
    },
    /// A request is answered with an error.
    Refuse {
        /// Status code.
        code: u16,
        /// `Retry-After` of 429 and 503; 1 if absent.
        #[serde(default = "one")]
        retry_after_seconds: u32,
    },
    /// A request waits before it is answered.
    Delay {
        /// Length of the wait.
        delay_ms: u64,
    },
    /// A request is answered, but its connection accepts no more.
    CloseConnection,
    /// A review is not answered: its connection, or its HTTP/2 stream, is aborted.
    BreakOff,
    /// A review gets an answer that makes no sense.
    Nonsense(Nonsense),
    /// All open watches end cleanly, at once.
    EndWatches,
    /// The history is discarded, at once.
    Compact,
    /// The armed faults are removed, at once.
    Clear,
}

const fn one() -> u32 {
    1
}

/// Why an order is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// A status code that cannot be ordered.
    #[error("code {0} is not one of {CODES:?}")]
    Code(u16),
    /// A delay or a length that is too large.
    #[error("{field} is more than {max}")]
    TooMuch {
        /// `delayMs` or `len`.
        field: &'static str,
        /// The maximum.
        max: u64,
    },
    /// Too many faults are armed.
    #[error("{ARMED_MAX} faults are armed already")]
    Full,
}

/// How often each fault has struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultCounts {
    /// Watches with an ordered break.
    pub cut: u64,
    /// Watches with an injected line, or with nothing but an ordered event or end.
    pub injected: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that were delayed.
    pub delayed: u64,
    /// Requests whose connection was closed.
    pub closed: u64,
    /// Reviews that were broken off.
    pub broken: u64,
    /// Reviews that were answered with nonsense.
    pub nonsense: u64,
    /// Orders to end watches.
    pub ended: u64,
    /// Orders to discard history.
    pub compacted: u64,
}

/// The faults of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestFaults {
    pub(super) delay: Option<Duration>,
    pub(super) refusal: Option<Status>,
    pub(super) closes_connection: bool,
    pub(super) breaks_off: bool,
    pub(super) nonsense: Option<Nonsense>,
    /// All that a watch sends: an ERROR event, or nothing.
    pub(super) only: Option<Option<Status>>,
    pub(super) cut_after: Option<u64>,
    pub(super) injected: Option<InjectedLine>,
}

/// A line that is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InjectedLine {
    Garbage,
    Oversized(usize),
}

/// The armed faults and the counts.
#[derive(Debug, Default)]
pub(super) struct Faults {
    armed: Vec<FaultOrder>,
    pub(super) counts: FaultCounts,
}

impl Faults {
    /// Takes an order. `EndWatches` and `Compact` are for the caller.
    pub(super) fn order(&mut self, order: FaultOrder) -> Result<(), FaultError> {
        match order.fault {
            Fault::EndWatches => self.counts.ended += 1,
            Fault::Compact => self.counts.compacted += 1,
            Fault::Clear => self.armed.clear(),
            Fault::Refuse { code, .. } | Fault::ErrorEvent { code, .. }
                if !CODES.contains(&code) =>
            {
                return Err(FaultError::Code(code));
            }
            Fault::OversizedFrame { len } | Fault::Nonsense(Nonsense::Oversized { len })
                if len > FRAME_LEN_MAX =>
            {
                let max = FRAME_LEN_MAX as u64;
                return Err(FaultError::TooMuch { field: "len", max });
            }
            Fault::Delay { delay_ms } if delay_ms > DELAY_MS_MAX => {
                let max = DELAY_MS_MAX;
                return Err(FaultError::TooMuch {
                    field: "delayMs",
                    max,
                });
            }
            Fault::CutWatch { .. }
            | Fault::GarbageFrame
            | Fault::OversizedFrame { .. }
            | Fault::EmptyWatch
            | Fault::ErrorEvent { .. }
            | Fault::Refuse { .. }
            | Fault::Delay { .. }
            | Fault::CloseConnection
            | Fault::BreakOff
            | Fault::Nonsense(_) => {
                if self.armed.len() >= ARMED_MAX {
                    return Err(FaultError::Full);
                }
                if order.count > 0 {
                    self.armed.push(order);
                }
            }
        }
        Ok(())
    }

    /// The faults of a request: of each kind the oldest that is armed.
    pub(super) fn strike(&mut self, verb: Verb, resource: &str) -> RequestFaults {
        let mut faults = RequestFaults::default();
        for order in &mut self.armed {
            if order.concerns(verb, resource) && faults.add(order.fault) {
                order.count -= 1;
            }
        }
        self.armed.retain(|order| order.count > 0);
        let counts = &mut self.counts;
        counts.cut += u64::from(faults.cut_after.is_some());
        counts.injected += u64::from(faults.injected.is_some() || faults.only.is_some());
        counts.refused += u64::from(faults.refusal.is_some());
        counts.delayed += u64::from(faults.delay.is_some());
        counts.closed += u64::from(faults.closes_connection);
        counts.broken += u64::from(faults.breaks_off);
        counts.nonsense += u64::from(faults.nonsense.is_some());
        faults
    }
}

impl FaultOrder {
    fn concerns(&self, verb: Verb, resource: &str) -> bool {
        let is_review = Review::of_plural(resource).is_some();
        let fits = match self.fault {
            Fault::CutWatch { .. }
            | Fault::GarbageFrame
            | Fault::OversizedFrame { .. }
            | Fault::EmptyWatch
            | Fault::ErrorEvent { .. } => verb == Verb::Watch,
            Fault::BreakOff | Fault::Nonsense(_) => is_review,
            Fault::Refuse { .. }
            | Fault::Delay { .. }
            | Fault::CloseConnection
            | Fault::EndWatches
            | Fault::Compact
            | Fault::Clear => true,
        };
        let is_resource =
            |ordered: &str| ordered == resource || (ordered == ALL_REVIEWS && is_review);
        fits && self.verb.is_none_or(|ordered| ordered == verb)
            && self.resource.as_deref().is_none_or(is_resource)
    }
}

impl RequestFaults {
    /// Adds a fault, unless the request has one of its kind.
    fn add(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::CutWatch { after_bytes } => fill(&mut self.cut_after, after_bytes),
            Fault::GarbageFrame => fill(&mut self.injected, InjectedLine::Garbage),
            Fault::OversizedFrame { len } => fill(&mut self.injected, InjectedLine::Oversized(len)),
            Fault::EmptyWatch => fill(&mut self.only, None),
            Fault::ErrorEvent { code, is_coded } => {
                let mut status = status(code, 0);
                if !is_coded {
                    status.code = 0;
                }
                fill(&mut self.only, Some(status))
            }
            Fault::Refuse {
                code,
                retry_after_seconds,
            } => fill(&mut self.refusal, status(code, retry_after_seconds)),
            Fault::Delay { delay_ms } => fill(&mut self.delay, Duration::from_millis(delay_ms)),
            Fault::CloseConnection => !std::mem::replace(&mut self.closes_connection, true),
            Fault::BreakOff => !std::mem::replace(&mut self.breaks_off, true),
            Fault::Nonsense(nonsense) => fill(&mut self.nonsense, nonsense),
            Fault::EndWatches | Fault::Compact | Fault::Clear => false,
        }
    }
}

fn fill<T>(option: &mut Option<T>, value: T) -> bool {
    let is_empty = option.is_none();
    option.get_or_insert(value);
    is_empty
}

/// The ordered error, with kube-apiserver's message where it has one.
fn status(code: u16, retry_after_seconds: u32) -> Status {
    let (reason, message) = match code {
        400 => ("BadRequest", "fault ordered"),
        401 => ("Unauthorized", "Unauthorized"),
        403 => ("Forbidden", "forbidden: fault ordered"),
        404 => (
            "NotFound",
            "the server could not find the requested resource",
        ),
        405 => ("MethodNotAllowed", "fault ordered"),
        406 => ("NotAcceptable", "fault ordered"),
        410 => (
            "Expired",
            "The resourceVersion for the provided watch is too old.",
        ),
        422 => ("Invalid", "fault ordered"),
        429 => ("TooManyRequests", "storage is (re)initializing"),
        503 => ("ServiceUnavailable", "apiserver is shutting down"),
        504 => ("Timeout", "Timeout: fault ordered"),
        _ => ("InternalError", "Internal error occurred: fault ordered"),
    };
    let status = Status::new(code, reason, message);
    if retry_after_seconds == 0 || !matches!(code, 429 | 503) {
        return status;
    }
    status.with(Details {
        retry_after_seconds: Some(retry_after_seconds),
        ..Details::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(order: &str) -> FaultOrder {
        serde_json::from_str(order).unwrap()
    }

    #[test]
    fn a_fault_strikes_the_requests_that_it_was_ordered_for() {
        let mut faults = Faults::default();
        faults
            .order(parse(
                r#"{"fault":{"refuse":{"code":503}},"verb":"list","resource":"pods","count":2}"#,
            ))
            .unwrap();
        faults
            .order(parse(r#"{"fault":{"cutWatch":{"afterBytes":7}}}"#))
            .unwrap();
        assert_eq!(faults.strike(Verb::Get, "pods"), RequestFaults::default());
        assert_eq!(faults.strike(Verb::List, "nodes"), RequestFaults::default());
        for _ in 0..2 {
            assert!(faults.strike(Verb::List, "pods").refusal.is_some());
        }
        assert_eq!(faults.strike(Verb::List, "pods"), RequestFaults::default());
        assert_eq!(faults.strike(Verb::Watch, "nodes").cut_after, Some(7));
        assert_eq!((faults.counts.refused, faults.counts.cut), (2, 1));
    }

    #[test]
    fn orders_beyond_a_bound_are_refused() {
        let mut faults = Faults::default();
        let code = faults.order(parse(r#"{"fault":{"refuse":{"code":418}}}"#));
        assert_eq!(code, Err(FaultError::Code(418)));
        let delay = faults.order(parse(r#"{"fault":{"delay":{"delayMs":60001}}}"#));
        assert!(matches!(delay, Err(FaultError::TooMuch { .. })));
        for _ in 0..ARMED_MAX {
            faults.order(parse(r#"{"fault":"breakOff"}"#)).unwrap();
        }
        assert_eq!(
            faults.order(parse(r#"{"fault":"breakOff"}"#)),
            Err(FaultError::Full)
        );
        faults.order(parse(r#"{"fault":"clear"}"#)).unwrap();
        faults.order(parse(r#"{"fault":"breakOff"}"#)).unwrap();
        assert!(serde_json::from_str::<FaultOrder>(r#"{"fault":"nope"}"#).is_err());
    }
}
