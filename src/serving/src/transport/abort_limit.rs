//! Judges how a client uses its connection: requests that it aborts before they are answered, and control frames that only make work.
//! Also classifies why a connection ended. It only judges; the listener closes the connection.

mod control_frames;

use std::error::Error;
use std::sync::Arc;

use prometheus::IntCounter;
use tokio::sync::watch;

use crate::fairness::{Activity, Standing};
use crate::metrics::ConnectionFailure;

pub(crate) use control_frames::ControlFrames;

/// This many aborted requests on one connection, and more than were answered, is abuse: each one starts and cancels a request to
/// upstream. The client gets a GOAWAY and reconnects, so a client with bad luck loses little.
const ABORTS_MAX: u64 = 500;

/// Header fields of all requests of one connection that are not answered yet, which costs about 7 MiB with the longest heads: 50 for each of
/// its streams. Over HTTP/2 a field may be a single byte on the wire.
const FIELDS_MAX: usize = 60_000;

/// Counts the requests of one connection by outcome.
#[derive(Clone, Debug)]
pub(crate) struct AbortLimit {
    counts: Arc<watch::Sender<RequestCounts>>,
    aborts: Option<IntCounter>,
    /// Of the connection's permit.
    standing: Option<Standing>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RequestCounts {
    started: u64,
    answered: u64,
    aborted: u64,
    /// Requests whose response is not completely written.
    in_flight: u64,
    /// Header fields of requests that are not answered yet.
    fields: usize,
    /// The action for control frames alone.
    frames: AbortAction,
}

/// What to do with a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AbortAction {
    /// Serve it.
    #[default]
    Serve,
    /// Send GOAWAY; open requests may finish.
    GoAway,
    /// Close it: it got GOAWAY and the abuse continues.
    Cut,
}

impl RequestCounts {
    fn action(self) -> AbortAction {
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
    /// Counters for a new connection. Aborted requests are also counted in `aborts`.
    pub(crate) fn new(aborts: Option<IntCounter>) -> Self {
        Self {
            counts: Arc::default(),
            aborts,
            standing: None,
        }
    }

    /// The first request makes this holder busy, before the client can have a response: until then anybody may take its permit.
    pub(crate) fn with_standing(self, standing: Option<Standing>) -> Self {
        Self { standing, ..self }
    }

    /// Counts a request that has arrived, with this number of header fields; `None` if those of the connection's requests are too many.
    pub(crate) fn begin(&self, fields: usize) -> Option<InFlightRequest> {
        let (mut is_accepted, mut is_first) = (false, false);
        self.count(|counts| {
            is_accepted = counts.fields + fields <= FIELDS_MAX;
            is_first = counts.started == 0;
            counts.started += 1;
            if is_accepted {
                counts.in_flight += 1;
                counts.fields += fields;
            }
        });
        if let Some(standing) = self.standing.as_ref().filter(|_| is_first) {
            standing.set(Activity::Busy);
        }
        is_accepted.then(|| InFlightRequest {
            abort_limit: self.clone(),
            is_answered: false,
            fields,
        })
    }

    /// The number of requests so far, and how many of their responses are not completely written.
    pub(crate) fn requests(&self) -> (u64, u64) {
        let counts = self.counts.borrow();
        (counts.started, counts.in_flight)
    }

    /// Records the action for the connection's control frames. It never becomes milder.
    pub(crate) fn record_frame_action(&self, action: AbortAction) {
        self.count(|counts| counts.frames = counts.frames.max(action));
    }

    /// Completes when the connection's action is `action` or more severe. Safe to cancel.
    pub(crate) fn reaches(&self, action: AbortAction) -> impl Future<Output = ()> + Send + use<> {
        let counts = Arc::clone(&self.counts);
        async move {
            let mut receiver = counts.subscribe();
            // The future itself holds a sender, so the channel stays open.
            let _ = receiver.wait_for(|counts| counts.action() >= action).await;
        }
    }

    /// Whether the connection's action is `action` or more severe.
    pub(crate) fn has_reached(&self, action: AbortAction) -> bool {
        self.counts.borrow().action() >= action
    }

    fn count(&self, change: impl FnOnce(&mut RequestCounts)) {
        self.counts.send_if_modified(|counts| {
            let before = counts.action();
            change(counts);
            counts.action() != before
        });
    }
}

/// A request that is not answered yet. Dropping it counts as an abort.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    abort_limit: AbortLimit,
    is_answered: bool,
    fields: usize,
}

impl InFlightRequest {
    /// Counts the request as answered. The returned guard goes with the response's body.
    pub(crate) fn answered(mut self) -> InFlight {
        self.is_answered = true;
        self.abort_limit.count(|counts| {
            counts.answered += 1;
            counts.fields -= self.fields;
        });
        InFlight(self.abort_limit.clone())
    }
}

/// A response that is not completely written. Dropping it ends the count.
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
        if let Some(aborts) = &self.abort_limit.aborts {
            aborts.inc();
        }
        self.abort_limit.count(|counts| {
            counts.aborted += 1;
            counts.in_flight -= 1;
            counts.fields -= self.fields;
        });
    }
}

/// Which misuse by the client ended its connection; `None` if it only disconnected.
pub(crate) fn failure(error: &hyper::Error) -> Option<ConnectionFailure> {
    if error.is_timeout() {
        return Some(ConnectionFailure::Timeout);
    }
    let of_http2 = error
        .source()
        .and_then(|source| source.downcast_ref::<h2::Error>());
    match of_http2 {
        // The client's own GOAWAY or reset is not judged.
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
    use std::net::IpAddr;

    use super::*;
    use crate::fairness::{Peer, Permits};

    #[track_caller]
    fn check(answered: u64, aborted: u64, expected: AbortAction) {
        let counts = RequestCounts {
            answered,
            aborted,
            ..RequestCounts::default()
        };
        assert_eq!(counts.action(), expected, "{counts:?}");
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
        let abort_limit = AbortLimit::new(Some(aborts.clone()));
        for _ in 0..ABORTS_MAX {
            drop(abort_limit.begin(9).unwrap().answered());
            drop(abort_limit.begin(9));
        }
        assert_eq!(aborts.get(), ABORTS_MAX);
        assert_eq!(abort_limit.counts.borrow().action(), AbortAction::Serve);
        drop(abort_limit.begin(9));
        abort_limit.reaches(AbortAction::GoAway).await;
        assert_eq!(abort_limit.counts.borrow().action(), AbortAction::GoAway);
    }

    #[test]
    fn a_request_is_in_flight_until_its_answer_has_left() {
        let abort_limit = AbortLimit::new(None);
        let begin = || abort_limit.begin(9).unwrap();
        let (first, second) = (begin(), begin());
        assert_eq!(abort_limit.requests(), (2, 2));
        let body = first.answered();
        drop(second);
        assert_eq!(abort_limit.requests(), (2, 1));
        drop(body);
        assert_eq!(abort_limit.requests(), (2, 0));
    }

    /// Anybody may take the permit of a connection that has carried no request.
    #[test]
    fn a_connection_is_used_as_soon_as_its_first_request_is_there() {
        let address = |last| Peer::from(IpAddr::from([127, 0, 0, last]));
        for has_request in [false, true] {
            let permits = Permits::new(1);
            let mut permit = permits.try_acquire(address(1)).unwrap();
            let _reclaim = permit.reclaimable();
            permit.standing().set(Activity::Unused);
            let abort_limit = AbortLimit::new(None).with_standing(Some(permit.standing()));
            let _request = has_request.then(|| abort_limit.begin(9).unwrap());
            let newcomer = permits.try_acquire(address(2));
            assert_eq!(newcomer.is_some(), !has_request);
        }
    }

    #[test]
    fn the_fields_of_requests_that_wait_are_bounded() {
        let abort_limit = AbortLimit::new(None);
        let first = abort_limit.begin(FIELDS_MAX - 1).unwrap();
        let second = abort_limit.begin(1).unwrap();
        assert!(abort_limit.begin(1).is_none());
        drop(second);
        let second = abort_limit.begin(1).unwrap();
        // The fields of a request that is answered are gone.
        let _body = first.answered();
        assert!(abort_limit.begin(FIELDS_MAX - 1).is_some());
        drop(second);
        assert!(abort_limit.begin(FIELDS_MAX).is_some());
        assert!(abort_limit.begin(FIELDS_MAX + 1).is_none());
    }
}
