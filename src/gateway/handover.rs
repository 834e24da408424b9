//! Takes caches over from other gateways, and hands them over (decision 49). A cache that starts asks the gateways that
//! `--handover-from` names for its state before it lists upstream. If none has a state that can be used, upstream is listed: every wait and
//! every length is bounded, and a bad state costs only the cache that it was for.

mod offer;
mod peer;
mod pipe;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::checkpoint::CheckpointContent;
use crate::config::HandoverSettings;
use crate::metrics::{HandoverOutcome, Metrics, TakenHandoverMetrics};
use crate::resource::{CacheKey, ResourceKind, random};
pub(super) use offer::HandoverOffers;
use peer::{HandoverError, HandoverPeer, WantedState};
pub(super) use pipe::PipeBody;

/// Gateways that are asked; a name that resolves to more is hardly one of gateways.
const PEERS_MAX: usize = 16;
/// Caches that are started because other gateways have them.
const CACHES_MAX: usize = 512;
/// Handovers at a time: half of what another gateway allows, so that two that start together do not refuse each other.
const HANDOVERS_MAX: usize = 2;
/// The pause before a busy gateway is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// The other gateways.
pub(super) struct Handover {
    settings: HandoverSettings,
    /// The port at which this gateway serves.
    own_port: u16,
    permits: Semaphore,
    /// Set once the caches that other gateways had at the start are here, or are not waited for any longer.
    settled: OnceLock<()>,
}

/// The handover of one cache.
#[derive(Clone)]
pub(super) struct CacheHandover {
    peers: Arc<Handover>,
    metrics: TakenHandoverMetrics,
}

impl Handover {
    pub(super) fn new(settings: HandoverSettings, own_port: u16) -> Arc<Self> {
        Arc::new(Self {
            settings,
            own_port,
            permits: Semaphore::new(HANDOVERS_MAX),
            settled: OnceLock::new(),
        })
    }

    /// The handover of one cache.
    pub(super) fn of(self: &Arc<Self>, key: &CacheKey, metrics: &Metrics) -> CacheHandover {
        CacheHandover {
            peers: Arc::clone(self),
            metrics: metrics.taken_handover(key.into()),
        }
    }

    /// Longest time of one handover.
    pub(super) const fn time_max(&self) -> Duration {
        self.settings.timeout
    }

    /// Whether the start is over: the gateway is not ready before.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.get().is_some()
    }

    /// Ends the start when the result is dropped.
    pub(super) fn settle(&self) -> impl Drop + use<'_> {
        SettleGuard(&self.settled)
    }

    /// The caches that the other gateways have together.
    pub(super) async fn caches(&self) -> BTreeSet<CacheKey> {
        let mut keys = BTreeSet::new();
        let addresses = match self.addresses().await {
            Ok(addresses) => addresses,
            Err(HandoverError::Alone) => return keys,
            Err(error) => {
                warn!(%error, "no caches are taken over");
                return keys;
            }
        };
        for address in addresses {
            match self.index_of(address).await {
                Ok(found) => keys.extend(found),
                Err(error) => warn!(%address, %error, "no caches are taken over from this gateway"),
            }
        }
        while keys.len() > CACHES_MAX {
            keys.pop_last();
        }
        keys
    }

    async fn index_of(&self, address: SocketAddr) -> Result<Vec<CacheKey>, HandoverError> {
        HandoverPeer::new(&self.settings, address)
            .await?
            .index()
            .await
    }

    /// The addresses of the other gateways, in an order that differs from gateway to gateway.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, HandoverError> {
        let url = &self.settings.from;
        let port = match url.scheme_str() {
            Some("http") => 80,
            Some(_) | None => 443,
        };
        let host = url.host().unwrap_or_default();
        let host = host.trim_matches(|c| matches!(c, '[' | ']'));
        let found = lookup_host((host, url.port_u16().unwrap_or(port))).await;
        let found: BTreeSet<_> = found.map_err(HandoverError::Unresolved)?.collect();
        let others = found.into_iter().filter(|address| !self.is_own(*address));
        let mut others: Vec<_> = others.take(PEERS_MAX).collect();
        if others.is_empty() {
            return Err(HandoverError::Alone);
        }
        let first = usize::try_from(random()).unwrap_or_default() % others.len();
        others.rotate_left(first);
        Ok(others)
    }

    /// Whether this process serves at the address.
    fn is_own(&self, address: SocketAddr) -> bool {
        address.port() == self.own_port && local_address(address) == Some(address.ip())
    }

    /// Takes a state over from the first gateway that has one that can be used.
    async fn take(
        &self,
        wanted: WantedState<'_>,
    ) -> Result<(CheckpointContent, u64), HandoverError> {
        let _permit = self.permits.acquire().await;
        loop {
            let mut first_error = HandoverError::Missing;
            for address in self.addresses().await? {
                match self.take_from(address, wanted).await {
                    Ok(taken) => return Ok(taken),
                    Err(HandoverError::Missing) => {}
                    Err(error) => {
                        info!(resource = %wanted.kind.cache_key(), %address, %error, "the cache is not taken over from this gateway");
                        // Only if nothing else was wrong is it worth to wait.
                        if matches!(first_error, HandoverError::Missing | HandoverError::Busy) {
                            first_error = error;
                        }
                    }
                }
            }
            if !matches!(first_error, HandoverError::Busy) {
                return Err(first_error);
            }
            sleep(BUSY_PAUSE).await;
        }
    }

    async fn take_from(
        &self,
        address: SocketAddr,
        wanted: WantedState<'_>,
    ) -> Result<(CheckpointContent, u64), HandoverError> {
        HandoverPeer::new(&self.settings, address)
            .await?
            .take(wanted)
            .await
    }
}

impl CacheHandover {
    /// The state of a cache of this kind in the cluster with this uid, from another gateway; `None` if there is none that can be used.
    pub(super) async fn take(
        &self,
        kind: &ResourceKind,
        cluster: Option<&str>,
    ) -> Option<CheckpointContent> {
        let (began, resource) = (Instant::now(), kind.cache_key());
        let wanted = WantedState { kind, cluster };
        let taken = timeout(self.peers.time_max(), self.peers.take(wanted)).await;
        let error = match taken.unwrap_or(Err(HandoverError::TimedOut)) {
            Ok((content, bytes)) => {
                self.metrics.transfers.record(bytes, began.elapsed());
                let state = &content.state;
                let (objects, events, version) =
                    (state.base.len(), state.events.len(), state.version);
                info!(%resource, objects, events, %version, bytes, elapsed = ?began.elapsed(), "took the cache over from another gateway");
                return Some(content);
            }
            Err(error) => error,
        };
        self.count(error.outcome());
        // A cache that nobody has is ordinary.
        if matches!(error, HandoverError::Missing | HandoverError::Alone) {
            info!(%resource, %error, "the cache is not taken over");
        } else {
            warn!(%resource, %error, "the cache is not taken over");
        }
        None
    }

    /// Counts what became of the handover.
    pub(super) fn count(&self, outcome: HandoverOutcome) {
        self.metrics.outcomes.inc(outcome);
    }
}

/// Ends the start when it is dropped, also if the task panics.
struct SettleGuard<'a>(&'a OnceLock<()>);

impl Drop for SettleGuard<'_> {
    fn drop(&mut self) {
        // Fails if the start has ended already.
        let _ = self.0.set(());
    }
}

/// The address from which this machine reaches another address. Nothing is sent.
fn local_address(other: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match other {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(other).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn handover(url: String, own_port: u16) -> Arc<Handover> {
        let settings = HandoverSettings {
            from: url.parse().unwrap(),
            ca_file: None,
            server_name: None,
            token_file: None,
            timeout: Duration::from_secs(1),
            len_max: 1 << 20,
        };
        Handover::new(settings, own_port)
    }

    #[tokio::test]
    async fn a_gateway_does_not_ask_itself() {
        for host in ["127.0.0.1", "[::1]"] {
            let Ok(listener) = TcpListener::bind(format!("{host}:0")) else {
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let url = format!("http://{host}:{port}/");
            let alone = handover(url.clone(), port).addresses().await;
            assert!(matches!(alone, Err(HandoverError::Alone)), "{alone:?}");
            let others = handover(url, port.wrapping_add(1)).addresses().await;
            assert_eq!(others.unwrap(), [listener.local_addr().unwrap()]);
        }
    }

    #[test]
    fn a_start_ends_with_its_task() {
        let handover = handover("http://127.0.0.1:1/".to_owned(), 2);
        let guard = handover.settle();
        assert!(!handover.is_settled());
        drop(guard);
        assert!(handover.is_settled());
    }
}
