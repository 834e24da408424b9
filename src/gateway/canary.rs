//! The canary: the gateway writes a Lease of its own upstream, and times the write until a watch of its own has the event (decision 58).
//!
//! The watch is one as clients have over HTTP/2: it joins a view of the cache, and its body is polled for frames. Each round has a new one,
//! so a round depends on nothing that an earlier one left behind.

mod lease;
mod own_watch;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::registry::Registry;
use crate::config::{CanarySettings, ServeSettings};
use crate::fairness::Peer;
use crate::metrics::{CanaryFailure, CanaryMetrics, Label as _, Metrics, TaskKind};
use crate::resource::{CacheKey, Gvr, ResourceVersion, fraction};
use crate::serve::resources::{Availability, FillWait, Resources as _};
use crate::shutdown::Drain;
use crate::task::restart_on_end;
use crate::upstream::client::Client;
use crate::view::ServedResource;
use lease::{CanaryLease, LeaseAnswer};
use own_watch::OwnWatch;

/// How long a round waits for its event after the write was answered. A healthy one takes milliseconds.
const DELIVERY_WAIT: Duration = Duration::from_secs(10);
/// How long the end of the gateway waits for the Lease to be deleted.
const DELETE_WAIT: Duration = Duration::from_secs(2);

/// Times writes of the gateway's own.
pub(super) struct Canary {
    client: Client,
    interval: Duration,
    lease: CanaryLease,
    metrics: CanaryMetrics,
    /// Why the last round failed; `None` if it did not. Only changes are logged.
    last_failure: Option<CanaryFailure>,
}

/// The way of one write.
#[derive(Clone, Copy, Debug)]
struct RoundTimes {
    sent_at: Instant,
    answered_at: Instant,
    /// `None` if the history has lost the event already.
    arrived_at: Option<Instant>,
    delivered_at: Instant,
}

impl Canary {
    /// The canary of a gateway with these settings, if it has one.
    pub(super) fn of(
        settings: &mut ServeSettings,
        client: &Client,
        metrics: &Metrics,
    ) -> Option<Self> {
        let CanarySettings {
            namespace,
            interval,
        } = settings.canary.take()?;
        Some(Self {
            client: client.clone(),
            interval,
            lease: CanaryLease::new(&namespace, interval),
            metrics: metrics.canary(),
            last_failure: None,
        })
    }

    /// Never returns.
    async fn rounds(&mut self, registry: &Registry) {
        loop {
            // Replicas that started together do not write at the same moment.
            sleep(self.interval.mul_f64(0.9 + 0.2 * fraction())).await;
            match self.round(registry).await {
                Ok(times) => self.succeeded(times),
                Err(failure) => self.failed(failure),
            }
        }
    }

    async fn round(&mut self, registry: &Registry) -> Result<RoundTimes, CanaryFailure> {
        let served = leases(registry).await.ok_or(CanaryFailure::NotCached)?;
        self.lease.prepare(&self.client).await?;
        let mut watch = OwnWatch::open(&served, self.lease.namespace(), self.lease.name())
            .ok_or(CanaryFailure::NotCached)?;
        let LeaseAnswer {
            version,
            sent_at,
            answered_at,
        } = {
            let mut write = std::pin::pin!(self.lease.write(&self.client));
            loop {
                // The event may be delivered before the write is answered.
                tokio::select! {
                    answer = &mut write => break answer?,
                    () = watch.read() => {}
                }
            }
        };
        let delivered = timeout(DELIVERY_WAIT, watch.until(version)).await;
        let delivered_at = delivered
            .ok()
            .flatten()
            .ok_or(CanaryFailure::NotDelivered)?;
        Ok(RoundTimes {
            sent_at,
            answered_at,
            arrived_at: arrival(&served, version),
            delivered_at,
        })
    }

    fn succeeded(&mut self, times: RoundTimes) {
        let since = |at: Instant| at.saturating_duration_since(times.sent_at).as_secs_f64();
        self.metrics.write.observe(since(times.answered_at));
        self.metrics.delivery.observe(since(times.delivered_at));
        if let Some(arrived_at) = times.arrived_at {
            self.metrics.arrival.observe(since(arrived_at));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0.0, |since| since.as_secs_f64());
        self.metrics.last_success.set(now);
        if self.last_failure.take().is_some() {
            info!(lease = self.lease.path(), "the canary comes back again");
        }
    }

    /// A Lease that stays is harmless: its labels say whose it was.
    async fn delete_lease(&self) {
        let delete = self.lease.delete(&self.client);
        if timeout(DELETE_WAIT, delete).await.is_err() {
            info!("the canary's Lease was not deleted in time");
        }
    }

    fn failed(&mut self, failure: CanaryFailure) {
        self.metrics.failures.inc(failure);
        if self.last_failure.replace(failure) != Some(failure) {
            warn!(
                lease = self.lease.path(),
                reason = failure.as_str(),
                "the canary has failed"
            );
        }
    }
}

/// The cache of all Leases, which is started if there is none; `None` if they are not served from memory.
async fn leases(registry: &Registry) -> Option<ServedResource> {
    let key = CacheKey::json(&Gvr::new("coordination.k8s.io", "v1", "leases"));
    match registry
        .availability(&key, FillWait::Long, Peer::UNKNOWN)
        .await
    {
        Availability::Ready(served) => Some(served),
        Availability::Filling { .. } | Availability::OtherEncoding | Availability::Forwarded(_) => {
            None
        }
    }
}

/// When the event of this version arrived.
fn arrival(served: &ServedResource, version: ResourceVersion) -> Option<Instant> {
    let before = ResourceVersion(version.0.checked_sub(1)?);
    let sequence = served.cache.resume_after(before).ok()?;
    let mut arrived_at = None;
    // If the event is evicted in between, its time remains unknown.
    let _ = served.cache.history().read(sequence, |_, event| {
        if event.resource_version() == version {
            arrived_at = Some(Instant::from_std(event.arrived_at()));
        }
        std::ops::ControlFlow::Break(())
    });
    arrived_at
}

/// The canary of a running gateway, if it has one.
pub(super) struct CanaryTask(Option<oneshot::Receiver<()>>);

impl CanaryTask {
    /// Starts the task. When a drain begins, it deletes the Lease and ends.
    pub(super) fn start(
        canary: Option<Canary>,
        tasks: &mut JoinSet<()>,
        (registry, metrics): (&Arc<Registry>, &Metrics),
        drain: &Drain,
    ) -> Self {
        let Some(canary) = canary else {
            return Self(None);
        };
        let (sender, receiver) = oneshot::channel();
        let (canary, registry) = (Mutex::new(canary), Arc::clone(registry));
        let (drained, ends) = (drain.begun(), metrics.task_ends());
        tasks.spawn(async move {
            {
                let (held, registry) = (&canary, &registry);
                let rounds = || async move { held.lock().await.rounds(registry).await };
                tokio::select! {
                    () = drained => {}
                    _ = restart_on_end(TaskKind::Canary, &ends, rounds) => {}
                }
            }
            canary.into_inner().delete_lease().await;
            // Nobody may wait for it yet.
            let _ = sender.send(());
        });
        Self(Some(receiver))
    }

    /// Returns once the Lease is deleted, or could not be.
    pub(super) async fn finish(self) {
        if let Some(deleted) = self.0 {
            // An error means that the task has ended.
            let _ = deleted.await;
        }
    }
}
