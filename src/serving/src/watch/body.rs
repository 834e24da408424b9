//! A watch as an HTTP body, for HTTP/2 and WebSocket, where the connection polls it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame};
use tokio::time::Instant;

use super::{CursorStep, TimerAction, Watch};
use crate::protocol::BufList;

impl Watch {
    /// True after the deadline. Checks the timer, which is cheaper than the clock, so that a watch of a client that is always
    /// behind still ends.
    fn is_overdue(&mut self, context: &mut Context<'_>) -> bool {
        if self.timer.is_none() {
            // Only registers the timer; whether it has elapsed is checked below.
            let _ = self.poll_timer(context);
        }
        self.timer.as_ref().is_some_and(|timer| timer.is_elapsed())
            && self.cursor.is_overdue(Instant::now())
    }

    /// Whether the last frame may be followed by a pause: the initial events are complete.
    pub(crate) fn pauses(&self) -> bool {
        !self.cursor.is_initial()
    }

    /// Sets the timer to the cursor's next time, and polls it.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let wake_at = self.cursor.wake_at();
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(wake_at)));
        if timer.deadline() != wake_at {
            timer.as_mut().reset(wake_at);
        }
        timer.as_mut().poll(context)
    }
}

impl Body for Watch {
    type Data = BufList;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, Infallible>>> {
        let this = self.get_mut();
        // Arm on every poll, because the polling task may change.
        this.cursor.arm_lease(context.waker());
        this.cursor.arm_recall(context.waker());
        this.cursor.follow_recall(context.waker());
        let _ = this.cursor.is_revoked() || this.is_overdue(context);
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
                    this.cursor.arm_block(context.waker());
                    is_armed = true;
                    continue;
                }
                CursorStep::Nothing => {}
            }
            if this.poll_timer(context).is_pending() {
                return Poll::Pending;
            }
            match this.cursor.on_timer(Instant::now()) {
                TimerAction::Bookmark(line) => return frame(line),
                // What is due comes after the block, which wakes the task.
                TimerAction::Nothing if this.cursor.waits_for_block() => return Poll::Pending,
                TimerAction::Ended | TimerAction::Nothing => {}
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.cursor.is_over()
    }
}

fn frame(buf: BufList) -> Poll<Option<Result<Frame<BufList>, Infallible>>> {
    Poll::Ready(Some(Ok(Frame::data(buf))))
}
