//! Upgraded connections: exec, attach, port-forward, watches over WebSocket. Bytes both ways, their meaning unknown.

use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::task::JoinSet;

use super::active::ActiveRequest;
use super::deadlines::ForwardDeadlines;
use crate::metrics::{PassthroughError, PassthroughMetrics, ShardedCounter};

/// Owns the tasks of all upgraded connections.
pub(super) struct Tunnels {
    /// `None` after a drain began.
    tasks: Mutex<Option<JoinSet<()>>>,
}

impl Tunnels {
    pub(super) fn new() -> Self {
        Self {
            tasks: Mutex::new(Some(JoinSet::new())),
        }
    }

    /// Whether tunnels may still be opened.
    pub(super) fn are_open(&self) -> bool {
        self.tasks().is_some()
    }

    fn tasks(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects the two ends, downstream first, as soon as both have changed protocols. Idle tunnels live on: a shell may wait for its
    /// user, and dead peers are found by TCP keep-alive. What may not last longer is closed, both ways at once.
    pub(super) fn open(
        &self,
        active: ActiveRequest,
        sides: (OnUpgrade, OnUpgrade),
        mut ends: ForwardDeadlines,
    ) {
        let tunnel = async move {
            // What it holds is closed when it is dropped.
            tokio::select! {
                () = connect(sides, active.metrics()) => {}
                () = ends.limit() => active.metrics().errors.inc(PassthroughError::Ended),
            }
        };
        // What comes after a drain took the tasks would have no owner.
        if let Some(tasks) = &mut *self.tasks() {
            // Ended ones are taken out here, so the set stays within the places plus those ended since the last opening.
            while tasks.try_join_next().is_some() {}
            tasks.spawn(tunnel);
        }
    }

    pub(super) async fn drain(&self, grace: Duration) -> usize {
        let Some(mut tasks) = self.tasks().take() else {
            return 0;
        };
        let all_ended = async { while tasks.join_next().await.is_some() {} };
        let ended = tokio::time::timeout(grace, all_ended).await;
        let cut = if ended.is_ok() { 0 } else { tasks.len() };
        tasks.shutdown().await;
        cut
    }
}

/// Carries bytes until both sides have ended.
async fn connect(sides: (OnUpgrade, OnUpgrade), metrics: &PassthroughMetrics) {
    let both = async { tokio::try_join!(sides.0, sides.1) };
    let (downstream, upstream) = match tokio::time::timeout(UPGRADE_TIMEOUT, both).await {
        Ok(Ok(sides)) => sides,
        Ok(Err(error)) => {
            tracing::debug!(%error, "upgrade not completed");
            return metrics.errors.inc(PassthroughError::Broken);
        }
        Err(_elapsed) => return metrics.errors.inc(PassthroughError::Timeout),
    };
    let mut downstream = CountingStream {
        stream: TokioIo::new(downstream),
        read: &metrics.bytes_sent,
    };
    let mut upstream = CountingStream {
        stream: TokioIo::new(upstream),
        read: &metrics.bytes_received,
    };
    let copied =
        copy_bidirectional_with_sizes(&mut downstream, &mut upstream, BUFFER_LEN, BUFFER_LEN);
    if let Err(error) = copied.await {
        tracing::debug!(%error, "upgraded connection broke");
        metrics.errors.inc(PassthroughError::Broken);
    }
}

/// Counts what is read while it is read, because tunnels live for hours.
struct CountingStream<'a, S> {
    stream: S,
    read: &'a ShardedCounter,
}

impl<S: AsyncRead + Unpin> AsyncRead for CountingStream<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.read.add((buffer.filled().len() - before) as u64);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountingStream<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Both ends have answered by then; what remains is writing 101 downstream.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// Port-forwards move files: fewer system calls than with tokio's 8 KiB.
const BUFFER_LEN: usize = 32 << 10;
