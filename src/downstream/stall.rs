//! Runs the streams of an HTTP/2 connection, and ends those whose client takes nothing of what waits for it. Requests that are
//! not yet answered, watches without events and whatever upstream gives are not judged here. A stream that panics is reset, and
//! counted.
//!
//! While a stream's window is shut hyper asks its body for nothing, so a body cannot notice. What can is the task around
//! the stream: it knows from the body's last word who waits for whom.

mod ending;

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use prometheus::IntCounter;
use tokio::time::Sleep;

use crate::metrics::{ByLabel, ListenerMetrics, Task};
pub(super) use ending::{Ending, Pauses, Reach};

/// As long as a connection may take nothing (the listener's `USER_TIMEOUT`).
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Who waits for whom once a body has been asked for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waits {
    /// The client for us.
    #[default]
    Client,
    /// We for the client, who has not taken the last frame.
    Server,
}

thread_local! {
    /// The last word of the body that is polled on this thread: it is polled within its stream.
    static LAST_WORD: Cell<Option<Waits>> = const { Cell::new(None) };
}

/// Said by a body each time it is asked.
pub(super) fn say(waits: Waits) {
    LAST_WORD.set(Some(waits));
}

/// Spawns the streams of connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    /// Streams that were ended.
    stalled: Option<IntCounter>,
    /// Those that panicked.
    panics: Option<ByLabel<Task>>,
}

impl Streams {
    /// Streams that are counted here.
    pub(super) fn new(metrics: Option<&ListenerMetrics>) -> Self {
        Self {
            stalled: metrics.map(|metrics| metrics.streams_stalled.clone()),
            panics: metrics.map(|metrics| metrics.task_ends.clone()),
        }
    }
}

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(Stream {
            stream: Box::pin(stream),
            waits: Waits::Client,
            timer: None,
            streams: self.clone(),
        });
    }
}

/// One stream. Dropped early, it is reset.
struct Stream<F> {
    stream: Pin<Box<F>>,
    waits: Waits,
    /// Runs while we wait for the client. A client that keeps up never makes us wait.
    timer: Option<Pin<Box<Sleep>>>,
    streams: Streams,
}

impl<F: Future> Future for Stream<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        LAST_WORD.set(None);
        // What is left half done belongs to the stream, and goes with it.
        let polled = catch_unwind(AssertUnwindSafe(|| this.stream.as_mut().poll(context)));
        let Ok(polled) = polled else {
            tracing::error!("a request over HTTP/2 panicked; its stream is reset");
            if let Some(panics) = &this.streams.panics {
                panics.inc(Task::Http2Stream);
            }
            return Poll::Ready(());
        };
        if polled.is_ready() {
            return Poll::Ready(());
        }
        if let Some(waits) = LAST_WORD.take() {
            // It got on.
            this.waits = waits;
            this.timer = None;
        }
        if this.waits == Waits::Client {
            return Poll::Pending;
        }
        let timer = this
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL_TIMEOUT)));
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        if let Some(stalled) = &this.streams.stalled {
            stalled.inc();
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests;
