//! A forwarded stream that the gateway can end at any time, even if its client does not read.
//!
//! hyper does not poll a body while its client does not read, so the body could not end itself. A task of its own waits for the deadline
//! instead: it cancels the request upstream and releases the stream's permit.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::AbortHandle;

use super::body_error::BodyError;
use super::boundary::Boundary;
use super::deadlines::{ForwardDeadlines, ForwardEnd};
use crate::metrics::{PassthroughError, PassthroughMetrics};

/// A body `B` and the task that ends it at its deadline. Dropping the body aborts the task.
#[derive(Debug)]
pub(super) struct GuardedBody<B> {
    stream: Arc<Mutex<GuardedStream<B>>>,
    deadline_task: AbortHandle,
}

/// How to abort a stream that cannot end between two events.
#[derive(Debug)]
pub(super) struct AbortPolicy {
    /// The time for an event that is in flight at the deadline.
    pub(super) grace: Duration,
    /// Where aborted streams are counted.
    pub(super) metrics: Arc<PassthroughMetrics>,
}

#[derive(Debug)]
struct GuardedStream<B> {
    /// `None` once the stream has ended.
    body: Option<B>,
    /// Where the stream may end; `None` means anywhere.
    boundary: Option<Boundary>,
    /// Whether the stream must end at the next boundary.
    is_due: bool,
    /// Whether the stream ended between two events.
    is_whole: bool,
    /// The waker of the task that reads the body.
    waker: Option<Waker>,
}

impl<B> GuardedBody<B>
where
    B: Body<Data = Bytes, Error = BodyError> + Send + Unpin + 'static,
{
    /// Starts the task.
    pub(super) fn new(
        body: B,
        boundary: Option<Boundary>,
        mut deadlines: ForwardDeadlines,
        policy: AbortPolicy,
    ) -> Self {
        let is_divided = boundary.is_some();
        let stream = Arc::new(Mutex::new(GuardedStream {
            body: Some(body),
            boundary,
            is_due: false,
            is_whole: false,
            waker: None,
        }));
        let weak = Arc::downgrade(&stream);
        let deadline_task = tokio::spawn(async move {
            if is_divided {
                if deadlines.any().await == ForwardEnd::Due {
                    change(&weak, |stream| {
                        stream.is_due = true;
                        None
                    });
                    // Both only wait; cancelling them loses nothing.
                    tokio::select! {
                        () = tokio::time::sleep(policy.grace) => {}
                        () = deadlines.reclaim() => {}
                    }
                }
            } else {
                deadlines.limit().await;
            }
            change(&weak, |stream| {
                let body = stream.end();
                if body.is_some() && !stream.is_whole {
                    policy.metrics.errors.inc(PassthroughError::Ended);
                }
                body
            });
        });
        Self {
            stream,
            deadline_task: deadline_task.abort_handle(),
        }
    }

    pub(super) fn poll_frame(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut stream = lock(&self.stream);
        let ended = match stream.is_due && stream.is_between_events() {
            true => stream.end(),
            false => None,
        };
        let Some(body) = &mut stream.body else {
            let is_whole = std::mem::replace(&mut stream.is_whole, true);
            drop(stream);
            drop(ended);
            return Poll::Ready((!is_whole).then_some(Err(BodyError::Ended)));
        };
        let polled = Pin::new(body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(boundary), Some(data)) = (&mut stream.boundary, frame.data_ref()) {
                    boundary.pass(data);
                }
            }
            Poll::Pending => stream.waker = Some(context.waker().clone()),
            Poll::Ready(Some(Err(_)) | None) => {}
        }
        polled
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let stream = lock(&self.stream);
        let body = stream.body.as_ref();
        body.map_or(stream.is_whole, Body::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let stream = lock(&self.stream);
        let body = stream.body.as_ref();
        body.map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl<B> GuardedStream<B> {
    fn is_between_events(&self) -> bool {
        self.boundary.as_ref().is_some_and(Boundary::is_here)
    }

    /// Ends the stream. The caller must drop the returned body outside the lock.
    fn end(&mut self) -> Option<B> {
        let body = self.body.take()?;
        self.is_whole = self.is_between_events();
        Some(body)
    }
}

impl<B> Drop for GuardedBody<B> {
    fn drop(&mut self) {
        self.deadline_task.abort();
    }
}

/// Changes the stream, if it still exists, and wakes the task that reads it.
fn change<B>(
    stream: &Weak<Mutex<GuardedStream<B>>>,
    change: impl FnOnce(&mut GuardedStream<B>) -> Option<B>,
) {
    let Some(stream) = stream.upgrade() else {
        return;
    };
    let (body, waker) = {
        let mut stream = lock(&stream);
        (change(&mut stream), stream.waker.take())
    };
    drop(body);
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn lock<B>(stream: &Mutex<GuardedStream<B>>) -> MutexGuard<'_, GuardedStream<B>> {
    stream.lock()
}

#[cfg(test)]
mod tests;
