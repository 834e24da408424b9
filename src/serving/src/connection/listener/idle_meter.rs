//! Whether a connection is idle: idle ones give their permits to newcomers first, and over HTTP/2 they end after a while.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::head_timer::IDLE_TIMEOUT;
use crate::connection::go_away::GoAway;
use crate::fairness::{Activity, Standing};
use crate::transport::Traffic;
use crate::transport::abort_limit::AbortLimit;

/// The time between GOAWAY and the end of a connection that stays idle.
const GO_AWAY_TIME: Duration = Duration::from_secs(5);

/// Polled after each poll of the connection. On drop the connection counts as busy.
pub(super) struct IdleMeter<'a> {
    standing: Option<&'a Standing>,
    abort_limit: AbortLimit,
    traffic: Traffic,
    activity: Activity,
    /// Requests counted when the connection was last polled.
    requests: u64,
    timer: Pin<Box<Sleep>>,
}

impl<'a> IdleMeter<'a> {
    pub(super) fn new(
        standing: Option<&'a Standing>,
        abort_limit: &AbortLimit,
        traffic: Traffic,
    ) -> Self {
        Self {
            standing,
            abort_limit: abort_limit.clone(),
            traffic,
            // As the listener has set it, or as the meter before left it.
            activity: match abort_limit.requests() {
                (0, _) => Activity::Unused,
                _ => Activity::Busy,
            },
            requests: 0,
            timer: Box::pin(tokio::time::sleep(IDLE_TIMEOUT)),
        }
    }

    /// Notes what the connection does; ready when its permit was taken back.
    pub(super) fn poll_reclaim(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (requests, in_flight) = self.abort_limit.requests();
        let activity = match (requests, in_flight) {
            (0, _) => Activity::Unused,
            (_, 0) => Activity::Idle,
            _ => Activity::Busy,
        };
        if self.requests < requests {
            self.timer.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
        }
        self.requests = requests;
        self.set(activity);
        self.traffic.poll_reclaim(context)
    }

    /// Begins to end an HTTP/2 connection that has been idle for too long, as kube-apiserver does, whatever PINGs its client answers; ready when
    /// it must be closed.
    pub(super) fn poll_http2(&mut self, go_away: &GoAway, context: &mut Context<'_>) -> Poll<()> {
        if self.activity == Activity::Busy || self.timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        if go_away.is_begun() {
            return Poll::Ready(());
        }
        go_away.begin();
        self.timer.as_mut().reset(Instant::now() + GO_AWAY_TIME);
        self.timer.as_mut().poll(context)
    }

    fn set(&mut self, activity: Activity) {
        if self.activity == activity {
            return;
        }
        self.activity = activity;
        if activity == Activity::Idle {
            self.timer.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
        }
        if let Some(standing) = self.standing {
            standing.set(activity);
        }
    }
}

impl Drop for IdleMeter<'_> {
    fn drop(&mut self) {
        self.set(Activity::Busy);
    }
}
