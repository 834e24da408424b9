//! Runs HTTP on one connection until it ends, by itself or because no more requests are to be accepted.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use tracing::debug;

use crate::connection::go_away::GoAway;
use crate::metrics::ConnectionFailure;
use crate::shutdown::Drain;
use crate::transport::Traffic;
use crate::transport::abort_limit::{AbortAction, AbortLimit, failure};
use crate::transport::stall;
use crate::watch::WatchRecall;

/// How long a drain waits for a client that has sent no whole request; the value of Go's servers.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long a connection without streams stays open after GOAWAY; the value of Go's servers.
pub(super) const GO_AWAY_MAX: Duration = Duration::from_secs(1);

/// How HTTP on a connection ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpEnd {
    Closed,
    /// A watch has taken the connection over; the socket stays open.
    Hijacked,
}

pub(super) type HttpResult = Result<HttpEnd, ConnectionFailure>;

/// What makes a connection accept no more requests.
pub(super) struct ConnectionEnds<'a> {
    pub(super) drain: &'a Drain,
    pub(super) go_away: &'a GoAway,
    pub(super) recall: Option<&'a WatchRecall>,
    pub(super) abort_limit: &'a AbortLimit,
    pub(super) farewell: Farewell,
}

impl ConnectionEnds<'_> {
    /// Runs a connection until it ends or `poll_end` is ready. Once the drain starts, the service ends the connection, it is recalled, or the
    /// client has exceeded the limit of aborted requests, the connection accepts no more requests, and is closed if its client says nothing.
    pub(super) async fn drive<C>(
        mut self,
        mut connection: Pin<&mut C>,
        shut_down: fn(Pin<&mut C>),
        mut poll_end: impl FnMut(&mut Context<'_>) -> Poll<HttpResult>,
    ) -> HttpResult
    where
        C: Future<Output = hyper::Result<()>>,
    {
        tokio::select! {
            ended = drive_until_hijacked(connection.as_mut(), &mut poll_end) => return self.judged(ended),
            () = self.drain.closing() => {}
            () = self.go_away.begun() => {}
            // Responses that begin later say so.
            () = recalled(self.recall) => self.go_away.begin(),
            () = self.abort_limit.reaches(AbortAction::GoAway) => {}
        }
        shut_down(connection.as_mut());
        let farewell = &mut self.farewell;
        farewell.begin();
        let mut poll_end = |context: &mut Context<'_>| match poll_end(context) {
            Poll::Pending => farewell.poll(context).map(|()| Ok(HttpEnd::Closed)),
            ended @ Poll::Ready(_) => ended,
        };
        // A client that does not answer the PING which follows GOAWAY can still open streams, so its connection is cut in the end.
        let ended = tokio::select! {
            ended = drive_until_hijacked(connection, &mut poll_end) => ended,
            () = self.abort_limit.reaches(AbortAction::Cut) => Err(ConnectionFailure::Flood),
        };
        self.judged(ended)
    }

    /// How a connection ended. One poll may read a whole flood and the end of the connection behind it.
    fn judged(&self, ended: HttpResult) -> HttpResult {
        match ended {
            Ok(HttpEnd::Closed) | Err(_) if self.abort_limit.has_reached(AbortAction::GoAway) => {
                Err(ConnectionFailure::Flood)
            }
            Ok(HttpEnd::Closed | HttpEnd::Hijacked) | Err(_) => ended,
        }
    }
}

/// Bounds how long a connection that accepts no more requests waits for its client: for the rest of a head, or for the answer to the PING
/// after GOAWAY. Responses are not bounded by it.
pub(super) struct Farewell {
    abort_limit: AbortLimit,
    traffic: Traffic,
    /// How long the client may say nothing.
    quiet_max: Duration,
    is_quiet: bool,
    timer: Pin<Box<Sleep>>,
    /// From then on, requests are from a client that ignores GOAWAY.
    late_at: Instant,
    requests: u64,
}

impl Farewell {
    pub(super) fn new(abort_limit: &AbortLimit, traffic: Traffic, quiet_max: Duration) -> Self {
        Self {
            abort_limit: abort_limit.clone(),
            traffic,
            quiet_max,
            is_quiet: false,
            timer: Box::pin(tokio::time::sleep(quiet_max)),
            late_at: Instant::now(),
            requests: 0,
        }
    }

    fn begin(&mut self) {
        self.late_at = Instant::now() + SILENCE_MAX;
        self.wait();
    }

    fn wait(&mut self) {
        self.timer.as_mut().reset(Instant::now() + self.quiet_max);
    }

    /// Ready when the client has kept the connection for too long.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (requests, in_flight) = self.abort_limit.requests();
        if requests > self.requests && Instant::now() >= self.late_at {
            return Poll::Ready(());
        }
        self.requests = requests;
        let was_quiet = self.is_quiet;
        self.is_quiet = in_flight == 0 && !self.traffic.is_flush_due();
        if self.is_quiet && !was_quiet {
            self.wait();
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if self.is_quiet {
                return Poll::Ready(());
            }
            // The last stream may end just after the connection was polled for it.
            self.wait();
        }
        Poll::Pending
    }
}

/// Completes when the connection is recalled; never if no connection is.
async fn recalled(recall: Option<&WatchRecall>) {
    match recall {
        Some(recall) => recall.begun().await,
        None => std::future::pending().await,
    }
}

/// Polls the connection until it ends or `poll_end` is ready. Safe to cancel: the connection keeps its state.
async fn drive_until_hijacked<C>(
    mut connection: Pin<&mut C>,
    poll_end: &mut impl FnMut(&mut Context<'_>) -> Poll<HttpResult>,
) -> HttpResult
where
    C: Future<Output = hyper::Result<()>>,
{
    poll_fn(|context| {
        stall::clear_signal();
        match connection.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(classify_end(ended).map(|()| HttpEnd::Closed)),
            Poll::Pending => poll_end(context),
        }
    })
    .await
}

fn classify_end(ended: hyper::Result<()>) -> Result<(), ConnectionFailure> {
    let Err(error) = ended else {
        return Ok(());
    };
    debug!(%error, "connection ended");
    failure(&error).map_or(Ok(()), Err)
}
