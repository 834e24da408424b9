//! How long an HTTP/1.1 connection waits for its client: for the head of a request once it has begun, for another request while it
//! is idle, and for an answer to be taken. Ends nothing itself.
//!
//! hyper's own time-out knows one duration for the first two, and nothing of the third.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::transport::Traffic;
use crate::transport::abort_limit::AbortLimit;
use crate::transport::stall::{self, StallTimer};

/// kube-apiserver's patience with a request's head (docs/PROTOCOL.md §4.14).
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
/// The same with a connection that is kept for another request. client-go gives up an idle connection after 90 s, as the API
/// server does; it must be the client that does so first, or a write may be sent just as the connection is closed.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(100);

/// Asked after each turn of a connection; see the module.
pub(super) struct HeadTimer {
    conduct: AbortLimit,
    traffic: Traffic,
    phase: HeadPhase,
    /// Requests that had come when the phase began.
    requests: u64,
    timer: Pin<Box<Sleep>>,
    /// Of the answer that is on its way.
    stall: StallTimer,
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadTimeout {
    /// The head of a request.
    Head,
    /// Another request.
    Idle,
    /// That the client takes its answer.
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadPhase {
    /// A request is being answered.
    Busy,
    /// All is answered, and nothing has come since.
    Idle,
    /// A head has begun, or is the first that is due.
    Head,
}

impl HeadTimer {
    /// Of a connection that carries `traffic` and has had the requests that `conduct` has counted.
    pub(super) fn new(conduct: AbortLimit, traffic: Traffic) -> Self {
        let (requests, _) = conduct.requests();
        let (phase, limit) = if requests > 0 {
            (HeadPhase::Idle, IDLE_TIMEOUT)
        } else {
            (HeadPhase::Head, HEAD_TIMEOUT)
        };
        Self {
            conduct,
            traffic,
            phase,
            requests,
            timer: Box::pin(tokio::time::sleep(limit)),
            stall: StallTimer::default(),
        }
    }

    /// Ready when the client has kept the connection waiting for too long. Asked on the thread that the connection has just had its turn
    /// on.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<HeadTimeout> {
        let word = stall::last_word();
        let (requests, in_flight) = self.conduct.requests();
        if self.requests < requests {
            self.stall = StallTimer::default();
        }
        if in_flight > 0 || self.traffic.is_flush_due() {
            self.phase = HeadPhase::Busy;
        } else if self.phase == HeadPhase::Busy || self.requests < requests {
            self.traffic.forget_reads();
            self.wait(HeadPhase::Idle, IDLE_TIMEOUT);
        } else if self.phase == HeadPhase::Idle && self.traffic.has_read() {
            self.wait(HeadPhase::Head, HEAD_TIMEOUT);
        }
        self.requests = requests;
        let overdue = match self.phase {
            HeadPhase::Busy => {
                ready!(self.stall.poll(word, context));
                return Poll::Ready(HeadTimeout::Answer);
            }
            HeadPhase::Idle => HeadTimeout::Idle,
            HeadPhase::Head => HeadTimeout::Head,
        };
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(overdue)
    }

    fn wait(&mut self, phase: HeadPhase, limit: Duration) {
        self.phase = phase;
        self.stall = StallTimer::default();
        self.timer.as_mut().reset(Instant::now() + limit);
    }
}
