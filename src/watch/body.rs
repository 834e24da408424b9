//! A watch as an HTTP body, for HTTP/2 and WebSocket, where the connection polls it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::{CursorStep, TimerAction, Watch, WatchCursor};
use crate::protocol::BufList;
use crate::view::WatchWaiter;

/// The body of a watch: its cursor with a timer.
#[derive(Debug)]
pub struct WatchBody {
    pub(super) cursor: WatchCursor,
    waiter: WatchWaiter,
    timer: Pin<Box<Sleep>>,
    timer_is_set: bool,
}

impl From<Watch> for WatchBody {
    fn from(watch: Watch) -> Self {
        let (cursor, waiter) = watch.into_parts();
        Self {
            timer: Box::pin(tokio::time::sleep_until(cursor.wake_at())),
            cursor,
            waiter,
            timer_is_set: false,
        }
    }
}

impl WatchBody {
    /// True after the deadline. Checks the timer, which is cheaper than the clock, so that a watch of a client that is always
    /// behind still ends.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        if !self.timer_is_set {
            self.timer_is_set = true;
            // Only registers the timer; whether it has elapsed is checked below.
            let _ = self.timer.as_mut().poll(context);
        }
        self.timer.is_elapsed() && self.cursor.is_overdue(Instant::now())
    }

    /// Whether the last frame may be followed by a pause: the initial events are complete.
    pub(crate) fn pauses(&self) -> bool {
        !self.cursor.is_initial()
    }

    /// Sets the timer to the cursor's next time, and polls it.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let wake_at = self.cursor.wake_at();
        if self.timer.deadline() != wake_at {
            self.timer.as_mut().reset(wake_at);
        }
        self.timer.as_mut().poll(context)
    }
}

impl Body for WatchBody {
    type Data = BufList;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, Infallible>>> {
        let this = self.get_mut();
        let frame = |buf| Poll::Ready(Some(Ok(Frame::data(buf))));
        // Arm on every poll, because the polling task may change.
        this.cursor.arm_lease(context.waker());
        this.cursor.arm_recall(context.waker());
        this.cursor.follow_recall();
        if this.cursor.is_revoked() || this.is_overdue(context) {
            return Poll::Ready(None);
        }
        let mut is_armed = false;
        loop {
            match this.cursor.next() {
                CursorStep::Frame(buf) => return frame(buf),
                CursorStep::Over => return Poll::Ready(None),
                CursorStep::Unfinished => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                // Arm, then check once more: a batch published before arming is found, a later one wakes the task.
                CursorStep::Nothing if !is_armed => {
                    this.waiter.arm(context.waker());
                    this.cursor.arm(context.waker());
                    is_armed = true;
                    continue;
                }
                CursorStep::Nothing => {}
            }
            if this.poll_timer(context).is_pending() {
                return Poll::Pending;
            }
            match this.cursor.on_timer(Instant::now()) {
                TimerAction::Ended => return Poll::Ready(None),
                TimerAction::Bookmark(line) => return frame(line.into()),
                TimerAction::Nothing => {}
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.cursor.end().is_some()
    }
}
