//! Upgraded connections: exec, attach, port-forward, watches over WebSocket. Bytes both ways, their meaning unknown.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::active::Active;
use crate::metrics::{PassthroughError, PassthroughMetrics, ShardedCounter};

/// Owns the tasks of all upgraded connections.
pub(super) struct Tunnels {
    places: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
}

/// Leave to open one tunnel.
pub(super) struct Place(OwnedSemaphorePermit);

impl Tunnels {
    pub(super) fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(TUNNELS_MAX)),
            tasks: Mutex::new(JoinSet::new()),
        }
    }

    /// Nothing once [`TUNNELS_MAX`] are open, or after a drain began.
    pub(super) fn place(&self) -> Option<Place> {
        self.places.clone().try_acquire_owned().ok().map(Place)
    }

    /// Connects the two ends, downstream first, as soon as both have changed protocols. Idle tunnels live on: a shell may wait for its
    /// user, and dead peers are found by TCP keep-alive.
    pub(super) fn open(&self, place: Place, active: Active, ends: (OnUpgrade, OnUpgrade)) {
        let tunnel = async move {
            let Place(_held) = place;
            connect(ends, active.metrics()).await;
        };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Ended ones are taken out here, so the set stays within the places plus those ended since the last opening.
        while tasks.try_join_next().is_some() {}
        // A drain closes the places before it takes the tasks: what comes later would have no owner.
        if !self.places.is_closed() {
            tasks.spawn(tunnel);
        }
    }

    pub(super) async fn drain(&self, grace: Duration) -> usize {
        self.places.close();
        let mut tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        let all_ended = async { while tasks.join_next().await.is_some() {} };
        let ended = tokio::time::timeout(grace, all_ended).await;
        let cut = if ended.is_ok() { 0 } else { tasks.len() };
        tasks.shutdown().await;
        cut
    }
}

/// Carries bytes until both sides have ended.
async fn connect(ends: (OnUpgrade, OnUpgrade), metrics: &PassthroughMetrics) {
    let both = async { tokio::try_join!(ends.0, ends.1) };
    let (downstream, upstream) = match tokio::time::timeout(UPGRADE_TIMEOUT, both).await {
        Ok(Ok(ends)) => ends,
        Ok(Err(error)) => {
            tracing::debug!(%error, "upgrade not completed");
            return metrics.errors.inc(PassthroughError::Broken);
        }
        Err(_elapsed) => return metrics.errors.inc(PassthroughError::Timeout),
    };
    let mut downstream = Counted {
        stream: TokioIo::new(downstream),
        read: &metrics.bytes_sent,
    };
    let mut upstream = Counted {
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
struct Counted<'a, S> {
    stream: S,
    read: &'a ShardedCounter,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<'_, S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<'_, S> {
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

/// Each holds two connections and two buffers: 320 MB and 8,192 file descriptors at most. A kubelet's own limit on
/// streams is met long before.
const TUNNELS_MAX: usize = 4096;

/// Both ends have answered by then; what remains is writing 101 downstream.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// Port-forwards move files: fewer system calls than with tokio's 8 KiB.
const BUFFER_LEN: usize = 32 << 10;
