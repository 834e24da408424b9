//! Upstream's response while it is sent: counted, bounded, and ended by the gateway at any time, even if its client does not read.
//!
//! hyper does not poll a body while its client does not read, so the body could not end itself. A task of its own waits for the deadline
//! instead: it cancels the request upstream and releases the stream's permit.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Sleep;

use super::active::ActiveRequest;
use super::body_error::BodyError;
use super::boundary::Boundary;
use super::deadlines::{ForwardDeadlines, ForwardEnd};
use crate::metrics::PassthroughError;
use crate::upstream::client::ResponseBodyError;

/// When a response ends although upstream would continue it.
#[derive(Debug)]
pub(super) struct StreamLimits {
    pub(super) deadlines: ForwardDeadlines,
    /// Where the stream may end at a deadline; `None` means anywhere.
    pub(super) boundary: Option<Boundary>,
    /// The time for an event that is in flight at the deadline.
    pub(super) grace: Duration,
    /// How long upstream may send nothing; for responses that end soon.
    pub(super) silence_max: Option<Duration>,
}

/// A response's body `B` and the task that ends it at its deadline. Dropping it aborts the task.
#[derive(Debug)]
pub(super) struct GuardedStream<B> {
    state: Arc<Mutex<GuardedState<B>>>,
    deadline_task: AbortHandle,
}

#[derive(Debug)]
struct GuardedState<B> {
    /// `None` once the stream has ended.
    exchange: Option<OpenExchange<B>>,
    boundary: Option<Boundary>,
    silence: Option<SilenceTimer>,
    /// Whether the stream must end at the next boundary.
    is_due: bool,
    /// Whether the stream ended between two events.
    is_whole: bool,
    /// The waker of the task that reads the body.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct OpenExchange<B> {
    body: B,
    active: ActiveRequest,
}

/// Bounds how long upstream may send nothing.
#[derive(Debug)]
struct SilenceTimer {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl SilenceTimer {
    /// Whether the silence has exceeded the limit; `is_silent` says whether it continues. Registers the task to be woken.
    fn has_expired(&mut self, is_silent: bool, context: &mut Context<'_>) -> bool {
        if !is_silent {
            self.timer = None;
            return false;
        }
        let limit = self.limit;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        timer.as_mut().poll(context).is_ready()
    }
}

impl<B> GuardedStream<B>
where
    B: Body<Data = Bytes, Error = ResponseBodyError> + Send + Unpin + 'static,
{
    pub(super) fn new(body: B, active: ActiveRequest, limits: StreamLimits) -> Self {
        let StreamLimits {
            mut deadlines,
            boundary,
            grace,
            silence_max,
        } = limits;
        let is_divided = boundary.is_some();
        let state = Arc::new(Mutex::new(GuardedState {
            exchange: Some(OpenExchange { body, active }),
            boundary,
            silence: silence_max.map(|limit| SilenceTimer { limit, timer: None }),
            is_due: false,
            is_whole: false,
            waker: None,
        }));
        let weak = Arc::downgrade(&state);
        let deadline_task = tokio::spawn(async move {
            if is_divided {
                if deadlines.any().await == ForwardEnd::Due {
                    change(&weak, |state| {
                        state.is_due = true;
                        None
                    });
                    // Both only wait; cancelling them loses nothing.
                    tokio::select! {
                        () = tokio::time::sleep(grace) => {}
                        () = deadlines.reclaim() => {}
                    }
                }
            } else {
                deadlines.limit().await;
            }
            change(&weak, |state| {
                let exchange = state.end()?;
                if !state.is_whole {
                    let metrics = exchange.active.metrics();
                    metrics.errors.inc(PassthroughError::Ended);
                }
                Some(exchange)
            });
        });
        Self {
            state,
            deadline_task: deadline_task.abort_handle(),
        }
    }

    pub(super) fn poll_frame(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.state.lock();
        let ended = match state.is_due && state.is_between_events() {
            true => state.end(),
            false => None,
        };
        let polled = state.poll_frame(context);
        drop(state);
        drop(ended);
        polled
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let state = self.state.lock();
        match &state.exchange {
            Some(exchange) => exchange.body.is_end_stream(),
            None => state.is_whole,
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let state = self.state.lock();
        let exchange = state.exchange.as_ref();
        exchange.map_or_else(SizeHint::default, |exchange| exchange.body.size_hint())
    }
}

impl<B> GuardedState<B> {
    fn is_between_events(&self) -> bool {
        self.boundary.as_ref().is_some_and(Boundary::is_here)
    }

    /// Ends the stream. The caller must drop the returned exchange outside the lock.
    fn end(&mut self) -> Option<OpenExchange<B>> {
        let exchange = self.exchange.take()?;
        self.is_whole = self.is_between_events();
        Some(exchange)
    }
}

impl<B> GuardedState<B>
where
    B: Body<Data = Bytes, Error = ResponseBodyError> + Unpin,
{
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(OpenExchange { body, active }) = &mut self.exchange else {
            // The error is returned once.
            let is_whole = std::mem::replace(&mut self.is_whole, true);
            return Poll::Ready((!is_whole).then_some(Err(BodyError::Ended)));
        };
        let polled = Pin::new(body).poll_frame(context);
        if let Some(silence) = &mut self.silence
            && silence.has_expired(polled.is_pending(), context)
        {
            active.metrics().errors.inc(PassthroughError::Timeout);
            return Poll::Ready(Some(Err(BodyError::Silent)));
        }
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    active.metrics().bytes_received.add(data.len() as u64);
                    if let Some(boundary) = &mut self.boundary {
                        boundary.pass(data);
                    }
                }
            }
            Poll::Ready(Some(Err(_))) => active.metrics().errors.inc(PassthroughError::Broken),
            Poll::Ready(None) => {}
            Poll::Pending => self.waker = Some(context.waker().clone()),
        }
        polled.map_err(BodyError::Broken)
    }
}

impl<B> Drop for GuardedStream<B> {
    fn drop(&mut self) {
        self.deadline_task.abort();
    }
}

/// Changes the stream, if it still exists, and wakes the task that reads it.
fn change<B>(
    state: &Weak<Mutex<GuardedState<B>>>,
    change: impl FnOnce(&mut GuardedState<B>) -> Option<OpenExchange<B>>,
) {
    let Some(state) = state.upgrade() else {
        return;
    };
    let (ended, waker) = {
        let mut state = state.lock();
        (change(&mut state), state.waker.take())
    };
    drop(ended);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests;
