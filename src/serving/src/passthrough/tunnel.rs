//! Upgraded connections: exec, attach, port-forward, watches over WebSocket. Bytes are copied in both directions without parsing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::task::JoinSet;

use super::active::ActiveRequest;
use super::deadlines::ForwardDeadlines;
use crate::metrics::{PassthroughError, PassthroughMetrics, ShardedCounter};

/// Owns the tasks of all upgraded connections.
pub(super) struct Tunnels {
    /// `None` once a drain has started.
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
        self.tasks.lock()
    }

    /// Connects the two sides, downstream first, once both have switched protocols. Idle tunnels stay open: a shell may wait for its user,
    /// and TCP keepalive detects dead peers. At its limit a tunnel is closed in both directions at once.
    pub(super) fn open(
        &self,
        active: ActiveRequest,
        downstream: OnUpgrade,
        upstream: OnUpgrade,
        mut deadlines: ForwardDeadlines,
    ) {
        let tunnel = async move {
            // Dropping the tunnel closes both connections.
            tokio::select! {
                () = connect(downstream, upstream, active.metrics()) => {}
                _ = deadlines.limit() => active.metrics().errors.inc(PassthroughError::Ended),
            }
        };
        // After a drain has taken the set, a new task would have no owner.
        if let Some(tasks) = &mut *self.tasks() {
            // Removing ended tasks here bounds the set by the permits plus the tasks that ended since the last opening.
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
        let closed = if ended.is_ok() { 0 } else { tasks.len() };
        tasks.shutdown().await;
        closed
    }
}

/// Copies bytes until both sides have ended.
async fn connect(downstream: OnUpgrade, upstream: OnUpgrade, metrics: &PassthroughMetrics) {
    let both = async { tokio::try_join!(downstream, upstream) };
    let (downstream, upstream) = match tokio::time::timeout(UPGRADE_TIMEOUT, both).await {
        Ok(Ok(sides)) => sides,
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot complete an upgrade");
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
        tracing::debug!(%error, "an upgraded connection failed");
        metrics.errors.inc(PassthroughError::Broken);
    }
}

/// Counts bytes as they are read, because tunnels last for hours.
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

/// Both sides have agreed by then; only writing the 101 to the client remains.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// Larger than tokio's 8 KiB, for fewer system calls: port-forwards transfer files.
const BUFFER_LEN: usize = 32 << 10;
