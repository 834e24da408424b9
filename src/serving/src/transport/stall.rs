//! Runs HTTP/2 streams, and ends responses whose client has stopped reading or takes too long. Requests that are not answered yet,
//! watches without events, and forwarded responses whose client may pause are not limited. A stream that panics is reset and counted.
//!
//! While a stream's window is closed, or the socket is full, hyper does not poll the body, so the body cannot notice the stall. The task
//! around it can: the body's last signal says whether the client or the gateway waits.

use std::cell::Cell;
use std::future::Future;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep};

use super::Traffic;
use crate::metrics::{ByLabel, ListenerMetrics, StalledStreams, TaskKind};

/// How long a client may read nothing: as long as on a connection (the listener's `USER_TIMEOUT`).
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a response that ends by itself may take. The API server allows one minute; this is for slow links. Until it ends, a list
/// keeps its snapshot in memory, and a forwarded request keeps its permit.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(600);

/// Which side waits for the other after the body was polled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitingSide {
    /// The client waits for the gateway.
    #[default]
    Client,
    /// The gateway waits for the client, which has not read the last frame.
    Server,
}

/// What a body reports each time it is polled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StallSignal {
    pub(crate) waiting: WaitingSide,
    /// Whether the response ends by itself soon: a list does, a watch does not.
    pub(crate) ends: bool,
}

/// Tells a stream's task that the stream is over, whether hyper polls its body or not: while hyper waits for the client's window, it does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamEnd(Arc<OnceLock<EndedStream>>);

/// Why a stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedStream {
    Over,
    /// The client has stopped reading.
    Stalled,
}

impl StreamEnd {
    /// Ends the stream when its task is polled next. Only the first end counts.
    pub(crate) fn set(&self, end: EndedStream) {
        let _ = self.0.set(end);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}

thread_local! {
    /// What ends the stream that is polled on this thread, if its body has just said so.
    static STREAM_END: Cell<Option<StreamEnd>> = const { Cell::new(None) };
    /// The last signal of the body that is polled on this thread. The body is polled inside the poll of its stream.
    static LAST_SIGNAL: Cell<Option<StallSignal>> = const { Cell::new(None) };
    /// Whether a response is being dropped because its client has stopped reading.
    static IS_CUT: Cell<bool> = const { Cell::new(false) };
}

/// Drops a response whose client has stopped reading. Only in here can the response learn why it is dropped, by [`is_cut`].
pub(crate) fn cut<R>(response: R) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            IS_CUT.set(false);
        }
    }
    let _reset = Reset;
    IS_CUT.set(true);
    drop(response);
}

/// Whether what is being dropped on this thread is dropped by [`cut`].
pub(crate) fn is_cut() -> bool {
    IS_CUT.get()
}

/// Records a body's signal; the body calls this each time it is polled.
pub(crate) fn signal(signal: StallSignal) {
    LAST_SIGNAL.set(Some(signal));
}

/// Lets `end` end the stream whose body is being polled.
pub(crate) fn end_by(end: StreamEnd) {
    STREAM_END.set(Some(end));
}

/// Discards the last signal. Called before another stream or connection is polled.
pub(crate) fn clear_signal() {
    LAST_SIGNAL.set(None);
}

/// The last signal since [`clear_signal`], which it discards.
pub(crate) fn take_signal() -> Option<StallSignal> {
    LAST_SIGNAL.take()
}

/// Bounds how long one response waits for its client.
#[derive(Debug, Default)]
pub(crate) struct StallTimer {
    waiting: WaitingSide,
    /// The deadline of a response that ends by itself.
    end_at: Option<Instant>,
    /// Set while one of the two limits applies.
    timer: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    /// Ready when a limit has expired. `signal` is the body's last signal since the previous call.
    pub(crate) fn poll(
        &mut self,
        signal: Option<StallSignal>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if let Some(signal) = signal {
            // The body was polled: there was progress.
            self.waiting = signal.waiting;
            self.timer = None;
            if signal.ends && self.end_at.is_none() {
                self.end_at = Some(Instant::now() + ANSWER_TIME_MAX);
            }
        }
        if self.waiting == WaitingSide::Client && self.end_at.is_none() {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| {
            let stalled_at =
                (self.waiting == WaitingSide::Server).then(|| Instant::now() + STALL_TIMEOUT);
            let due = [stalled_at, self.end_at].into_iter().flatten().min();
            Box::pin(tokio::time::sleep_until(due.unwrap_or_else(Instant::now)))
        });
        timer.as_mut().poll(context)
    }
}

/// Spawns the tasks of a connection's HTTP/2 streams.
#[derive(Clone, Debug)]
pub(crate) struct StallExecutor {
    client: IpAddr,
    /// Of the connection: if it ends because its client has stalled, all of its streams have.
    traffic: Traffic,
    /// Counts the connection, once, when its client has stopped reading one of its streams: a single dead client has many.
    stalled: Option<StalledStreams>,
    is_counted: Arc<OnceLock<()>>,
    /// Counts streams that panicked.
    panics: Option<ByLabel<TaskKind>>,
}

impl StallExecutor {
    /// Streams of this client's connection, which are counted in these metrics.
    pub(crate) fn new(client: IpAddr, traffic: Traffic, metrics: Option<&ListenerMetrics>) -> Self {
        Self {
            client,
            traffic,
            stalled: metrics.map(|metrics| metrics.streams_stalled.clone()),
            is_counted: Arc::default(),
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
            stream: Some(Box::pin(stream)),
            timer: StallTimer::default(),
            end: None,
            streams: self.clone(),
        });
    }
}

/// One HTTP/2 stream. If it is dropped before its end, hyper resets it.
struct Http2Stream<F> {
    /// `None` after its end.
    stream: Option<Pin<Box<F>>>,
    timer: StallTimer,
    end: Option<StreamEnd>,
    streams: StallExecutor,
}

impl<F: Future> Future for Http2Stream<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(());
        };
        clear_signal();
        // Whatever state the panic has left inconsistent belongs to this stream and is dropped with it.
        let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(context)));
        if let Some(end) = STREAM_END.take() {
            this.end = Some(end);
        }
        let Ok(polled) = polled else {
            tracing::error!("a request over HTTP/2 panicked; its stream is reset");
            if let Some(panics) = &this.streams.panics {
                panics.inc(TaskKind::Http2Stream);
            }
            return Poll::Ready(());
        };
        let ended = this.end.as_ref().and_then(|end| end.0.get());
        let has_stalled = match (polled, ended) {
            (Poll::Ready(_), _) => this.streams.traffic.has_stalled(),
            (Poll::Pending, Some(EndedStream::Over)) => {
                this.stream = None;
                false
            }
            (Poll::Pending, Some(EndedStream::Stalled)) => true,
            (Poll::Pending, None) => {
                std::task::ready!(this.timer.poll(take_signal(), context));
                true
            }
        };
        if has_stalled {
            cut(this.stream.take());
            if let Some(stalled) = &this.streams.stalled
                && this.streams.is_counted.set(()).is_ok()
            {
                stalled.note(this.streams.client);
            }
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
