//! Runs the streams of HTTP/2 connections, and ends answers whose clients take nothing of what waits for them, or take too long
//! over it. Requests that are not yet answered, watches without events and what upstream gives to whoever may pause are not
//! judged here. A stream that panics is reset, and counted.
//!
//! While a stream's window is shut, or a socket is full, hyper asks the body for nothing, so a body cannot notice. What can is
//! the task around it: it knows from the body's last word who waits for whom.

mod split_last_byte;

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use prometheus::IntCounter;
use tokio::time::{Instant, Sleep};

use crate::metrics::{ByLabel, ListenerMetrics, TaskKind};
pub(crate) use split_last_byte::{PauseHint, SplitLastByte, SplitMode};

/// As long as a connection may take nothing (the listener's `USER_TIMEOUT`).
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// What ends by itself has ended by then. The API server cuts it after a minute; this is for slow links. Meanwhile a list keeps
/// the state that it shows in memory, and whatever is forwarded a place.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(600);

/// Who waits for whom once a body has been asked for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitingSide {
    /// The client for us.
    #[default]
    Client,
    /// We for the client, who has not taken the last frame.
    Server,
}

/// What a body says of its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StallSignal {
    pub(crate) waits: WaitingSide,
    /// Whether the answer ends by itself, and soon: a list does, a watch does not.
    pub(crate) ends: bool,
}

thread_local! {
    /// The last word of the body that is polled on this thread: it is polled within its stream.
    static LAST_WORD: Cell<Option<StallSignal>> = const { Cell::new(None) };
}

/// Said by a body each time it is asked.
pub(crate) fn signal(word: StallSignal) {
    LAST_WORD.set(Some(word));
}

/// Forgets what was said before: now something else is polled.
pub(crate) fn clear_signal() {
    LAST_WORD.set(None);
}

/// What was said since.
pub(crate) fn last_word() -> Option<StallSignal> {
    LAST_WORD.take()
}

/// How long one answer keeps waiting for its client.
#[derive(Debug, Default)]
pub(crate) struct StallTimer {
    waits: WaitingSide,
    /// When an answer that ends by itself must have ended.
    end_at: Option<Instant>,
    /// Runs while something is bounded.
    timer: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    /// Ready when the client has had its time. `word` is what the body has said since this was asked last.
    pub(crate) fn poll(
        &mut self,
        word: Option<StallSignal>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if let Some(word) = word {
            // It got on.
            self.waits = word.waits;
            self.timer = None;
            if word.ends && self.end_at.is_none() {
                self.end_at = Some(Instant::now() + ANSWER_TIME_MAX);
            }
        }
        if self.waits == WaitingSide::Client && self.end_at.is_none() {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| {
            let stalled_at =
                (self.waits == WaitingSide::Server).then(|| Instant::now() + STALL_TIMEOUT);
            let due = [stalled_at, self.end_at].into_iter().flatten().min();
            Box::pin(tokio::time::sleep_until(due.unwrap_or_else(Instant::now)))
        });
        timer.as_mut().poll(context)
    }
}

/// Spawns the streams of connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct StallExecutor {
    /// Streams that were ended.
    stalled: Option<IntCounter>,
    /// Those that panicked.
    panics: Option<ByLabel<TaskKind>>,
}

impl StallExecutor {
    /// Streams that are counted here.
    pub(crate) fn new(metrics: Option<&ListenerMetrics>) -> Self {
        Self {
            stalled: metrics.map(|metrics| metrics.streams_stalled.clone()),
            panics: metrics.map(|metrics| metrics.task_ends.clone()),
        }
    }
}

impl<F> Executor<F> for StallExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(Http2Stream {
            stream: Box::pin(stream),
            timer: StallTimer::default(),
            streams: self.clone(),
        });
    }
}

/// One stream of HTTP/2. Dropped early, it is reset.
struct Http2Stream<F> {
    stream: Pin<Box<F>>,
    timer: StallTimer,
    streams: StallExecutor,
}

impl<F: Future> Future for Http2Stream<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        clear_signal();
        // What is left half done belongs to the stream, and goes with it.
        let polled = catch_unwind(AssertUnwindSafe(|| this.stream.as_mut().poll(context)));
        let Ok(polled) = polled else {
            tracing::error!("a request over HTTP/2 panicked; its stream is reset");
            if let Some(panics) = &this.streams.panics {
                panics.inc(TaskKind::Http2Stream);
            }
            return Poll::Ready(());
        };
        if polled.is_ready() {
            return Poll::Ready(());
        }
        if this.timer.poll(last_word(), context).is_pending() {
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
