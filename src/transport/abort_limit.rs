//! How a client treats its connection: requests that it gives up before they are answered, control frames that only make work,
//! and why the connection ended. It ends nothing itself.

mod control_frames;

use std::error::Error;
use std::sync::Arc;

use prometheus::IntCounter;
use tokio::sync::watch;

use crate::metrics::ConnectionFailure;

pub(crate) use control_frames::ControlFrames;

/// So many requests given up on one connection, and more than were answered, are no accident: each costs a request at
/// upstream that is begun and broken off. A client is told to connect anew, so one with bad luck loses little.
const ABORTS_MAX: u64 = 500;

/// Counts what happens to the requests of one connection.
#[derive(Clone, Debug)]
pub(crate) struct AbortLimit {
    counts: Arc<watch::Sender<RequestCounts>>,
    aborts: Option<IntCounter>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RequestCounts {
    begun: u64,
    answered: u64,
    aborted: u64,
    /// Answers whose bodies have not left.
    in_flight: u64,
    /// For control frames alone.
    frames: AbortAction,
}

/// What a connection deserves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AbortAction {
    /// To be served.
    #[default]
    Serve,
    /// To be told to go away; what runs on it may end.
    GoAway,
    /// To be cut: it was told, and goes on.
    Cut,
}

impl RequestCounts {
    fn verdict(self) -> AbortAction {
        let aborts = if self.aborted < ABORTS_MAX || self.aborted <= self.answered {
            AbortAction::Serve
        } else if self.aborted < 2 * ABORTS_MAX {
            AbortAction::GoAway
        } else {
            AbortAction::Cut
        };
        aborts.max(self.frames)
    }
}

impl AbortLimit {
    /// Of a new connection. What is given up on it is counted in `aborts` too.
    pub(crate) fn new(aborts: Option<IntCounter>) -> Self {
        Self {
            counts: Arc::default(),
            aborts,
        }
    }

    /// A request has come.
    pub(crate) fn begin(&self) -> InFlightRequest {
        self.count(|counts| {
            counts.begun += 1;
            counts.in_flight += 1;
        });
        InFlightRequest {
            conduct: self.clone(),
            is_answered: false,
        }
    }

    /// Requests that have come so far, and those of them whose answers have not left.
    pub(crate) fn requests(&self) -> (u64, u64) {
        let counts = self.counts.borrow();
        (counts.begun, counts.in_flight)
    }

    /// What the control frames on the connection deserve, when that changes.
    pub(crate) fn judge_frames(&self, verdict: AbortAction) {
        self.count(|counts| counts.frames = counts.frames.max(verdict));
    }

    /// Completes when the verdict is `verdict` or worse. Safe to cancel.
    pub(crate) fn reaches(&self, verdict: AbortAction) -> impl Future<Output = ()> + Send + use<> {
        let counts = Arc::clone(&self.counts);
        async move {
            let mut seen = counts.subscribe();
            // The future itself keeps the sender, so the channel cannot close under it.
            let _ = seen.wait_for(|counts| counts.verdict() >= verdict).await;
        }
    }

    fn count(&self, change: impl FnOnce(&mut RequestCounts)) {
        self.counts.send_if_modified(|counts| {
            let before = counts.verdict();
            change(counts);
            counts.verdict() != before
        });
    }
}

/// A request without an answer. Dropped, it counts as given up.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    conduct: AbortLimit,
    is_answered: bool,
}

impl InFlightRequest {
    /// The head of an answer is ready; what is returned goes with its body.
    pub(crate) fn answered(mut self) -> InFlight {
        self.is_answered = true;
        self.conduct.count(|counts| counts.answered += 1);
        InFlight(self.conduct.clone())
    }
}

/// An answer whose body has not left.
#[derive(Debug)]
pub(crate) struct InFlight(AbortLimit);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.count(|counts| counts.in_flight -= 1);
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        if let Some(aborts) = &self.conduct.aborts {
            aborts.inc();
        }
        self.conduct.count(|counts| {
            counts.aborted += 1;
            counts.in_flight -= 1;
        });
    }
}

/// What in a client's conduct ended its connection; `None` where it merely went away.
pub(crate) fn failure(error: &hyper::Error) -> Option<ConnectionFailure> {
    if error.is_timeout() {
        return Some(ConnectionFailure::Timeout);
    }
    let of_http2 = error
        .source()
        .and_then(|source| source.downcast_ref::<h2::Error>());
    match of_http2 {
        // Of what the client itself says in its last frame we judge nothing.
        Some(error) if error.is_remote() || error.is_io() => None,
        Some(error) if error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM) => {
            Some(ConnectionFailure::Flood)
        }
        Some(_) => Some(ConnectionFailure::Protocol),
        None => error.is_parse().then_some(ConnectionFailure::Protocol),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answered: u64, aborted: u64, expected: AbortAction) {
        let counts = RequestCounts {
            answered,
            aborted,
            ..RequestCounts::default()
        };
        assert_eq!(counts.verdict(), expected, "{counts:?}");
    }

    #[test]
    fn only_those_who_give_up_much_and_most_are_sent_away() {
        check(0, 0, AbortAction::Serve);
        check(0, ABORTS_MAX - 1, AbortAction::Serve);
        check(0, ABORTS_MAX, AbortAction::GoAway);
        check(ABORTS_MAX, ABORTS_MAX, AbortAction::Serve);
        check(100 * ABORTS_MAX, 99 * ABORTS_MAX, AbortAction::Serve);
        check(0, 2 * ABORTS_MAX - 1, AbortAction::GoAway);
        check(2 * ABORTS_MAX - 1, 2 * ABORTS_MAX, AbortAction::Cut);
    }

    #[tokio::test]
    async fn requests_dropped_without_an_answer_are_counted() {
        let aborts = IntCounter::new("aborts", "for a test").unwrap();
        let conduct = AbortLimit::new(Some(aborts.clone()));
        for _ in 0..ABORTS_MAX {
            drop(conduct.begin().answered());
            drop(conduct.begin());
        }
        assert_eq!(aborts.get(), ABORTS_MAX);
        assert_eq!(conduct.counts.borrow().verdict(), AbortAction::Serve);
        drop(conduct.begin());
        conduct.reaches(AbortAction::GoAway).await;
        assert_eq!(conduct.counts.borrow().verdict(), AbortAction::GoAway);
    }

    #[test]
    fn a_request_is_in_flight_until_its_answer_has_left() {
        let conduct = AbortLimit::new(None);
        let (first, second) = (conduct.begin(), conduct.begin());
        assert_eq!(conduct.requests(), (2, 2));
        let body = first.answered();
        drop(second);
        assert_eq!(conduct.requests(), (2, 1));
        drop(body);
        assert_eq!(conduct.requests(), (2, 0));
    }
}
