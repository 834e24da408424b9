//! How long an HTTP/1.1 connection waits for its client: for the rest of a request's head, for another request while the connection
//! is idle, and for the client to read a response. It only reports; the listener ends the connection.
//!
//! hyper's own timeout has one duration for the first two and does not cover the third.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::transport::Traffic;
use crate::transport::abort_limit::AbortLimit;
use crate::transport::stall::{self, StallTimer};

/// The time for a request's head; kube-apiserver's value (docs/PROTOCOL.md §4.14).
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
/// How long an idle connection stays open. client-go closes an idle connection after 90 s, as the API server does. The client must
/// close first; otherwise it may send a write just as the gateway closes the connection.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(100);

/// The timer of one connection, polled after each poll of the connection.
pub(super) struct HeadTimer {
    abort_limit: AbortLimit,
    traffic: Traffic,
    phase: HeadPhase,
    /// Requests counted when the phase started.
    requests: u64,
    timer: Pin<Box<Sleep>>,
    /// Bounds the response that is being written.
    stall: StallTimer,
}

/// What the connection waited for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadTimeout {
    /// The rest of a request's head.
    Head,
    /// Another request.
    Idle,
    /// The client to read its response.
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadPhase {
    /// A request is being answered, or its response written.
    Busy,
    /// All responses are written, and no byte has arrived since.
    Idle,
    /// Part of a head has arrived, or the connection's first head is due.
    Head,
}

impl HeadTimer {
    /// A timer for the connection that carries `traffic` and whose requests `abort_limit` counts.
    pub(super) fn new(abort_limit: AbortLimit, traffic: Traffic) -> Self {
        let (requests, _) = abort_limit.requests();
        let (phase, limit) = if requests > 0 {
            (HeadPhase::Idle, IDLE_TIMEOUT)
        } else {
            (HeadPhase::Head, HEAD_TIMEOUT)
        };
        Self {
            abort_limit,
            traffic,
            phase,
            requests,
            timer: Box::pin(tokio::time::sleep(limit)),
            stall: StallTimer::default(),
        }
    }

    /// Ready when the client has kept the connection waiting for too long. Must be called on the thread that has just polled the
    /// connection, because the body's last signal is in a thread-local variable.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<HeadTimeout> {
        let signal = stall::take_signal();
        let (requests, in_flight) = self.abort_limit.requests();
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
                ready!(self.stall.poll(signal, context));
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
