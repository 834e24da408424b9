//! Upgraded connections: exec, attach, port-forward, watches over WebSocket. Bytes both ways, their meaning unknown.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::{PassthroughCounts, add};

/// Owns the tasks of all upgraded connections.
pub(super) struct Tunnels {
    counts: Arc<PassthroughCounts>,
    places: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
}

/// Leave to open one tunnel.
pub(super) struct Place(OwnedSemaphorePermit);

impl Tunnels {
    pub(super) fn new(counts: Arc<PassthroughCounts>) -> Self {
        Self {
            counts,
            places: Arc::new(Semaphore::new(TUNNELS_MAX)),
            tasks: Mutex::new(JoinSet::new()),
        }
    }

    /// Nothing once [`TUNNELS_MAX`] are open, or after a drain began.
    pub(super) fn place(&self) -> Option<Place> {
        self.places.clone().try_acquire_owned().ok().map(Place)
    }

    /// Connects the two ends as soon as both have changed protocols. Idle tunnels live on: a shell may wait for its
    /// user, and dead peers are found by TCP keep-alive.
    pub(super) fn open(&self, place: Place, downstream: OnUpgrade, upstream: OnUpgrade) {
        add(&self.counts.tunnels_opened, 1);
        let closing = Closing(self.counts.clone());
        let tunnel = async move {
            let Place(_held) = place;
            if let Some(len) = connect(downstream, upstream).await {
                add(&closing.0.tunnel_len, len);
            }
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

/// Counts the end of a tunnel also when its task is cut.
struct Closing(Arc<PassthroughCounts>);

impl Drop for Closing {
    fn drop(&mut self) {
        add(&self.0.tunnels_closed, 1);
    }
}

/// Bytes carried, if both sides ended orderly.
async fn connect(downstream: OnUpgrade, upstream: OnUpgrade) -> Option<u64> {
    let both = async { tokio::try_join!(downstream, upstream) };
    let (downstream, upstream) = match tokio::time::timeout(UPGRADE_TIMEOUT, both).await {
        Ok(Ok(ends)) => ends,
        Ok(Err(error)) => {
            tracing::debug!(%error, "upgrade not completed");
            return None;
        }
        Err(_elapsed) => return None,
    };
    let mut downstream = TokioIo::new(downstream);
    let mut upstream = TokioIo::new(upstream);
    match copy_bidirectional_with_sizes(&mut downstream, &mut upstream, BUFFER_LEN, BUFFER_LEN)
        .await
    {
        Ok((up, down)) => Some(up + down),
        Err(error) => {
            tracing::debug!(%error, "upgraded connection broke");
            None
        }
    }
}

/// Each holds two connections and two buffers: 320 MB and 8,192 file descriptors at most. A kubelet's own limit on
/// streams is met long before.
const TUNNELS_MAX: usize = 4096;

/// Both ends have answered by then; what remains is writing 101 downstream.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// Port-forwards move files: fewer system calls than with tokio's 8 KiB.
const BUFFER_LEN: usize = 32 << 10;
