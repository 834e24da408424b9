//! Takes caches over from other gateways, and hands them over (decision 43). A cache that starts asks the gateways that
//! `--handover-from` names for its state before it lists upstream. If none has a state that can be used, upstream is listed: every wait and
//! every length is bounded, and a bad state costs only the cache that it was for.

mod offer;
mod peer;
mod pipe;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};

use crate::checkpoint::CheckpointContent;
use crate::config::HandoverSettings;
use crate::error_chain::one_line;
use crate::metrics::{HandoverOutcome, Metrics, TakenHandoverMetrics};
use crate::net::lookup_host;
use crate::protocol::handover::GatewayLoad;
use crate::resource::{CacheKey, random};
use crate::restored::WantedState;
pub(super) use offer::HandoverOffers;
use peer::{HandoverError, HandoverPeer};

/// Gateways that are asked; a name that resolves to more is hardly one of gateways.
const PEERS_MAX: usize = 16;
/// Caches that are started because other gateways have them.
const CACHES_MAX: usize = 512;
/// Handovers at a time: half of what another gateway allows, so that two that start together do not refuse each other.
const HANDOVERS_MAX: usize = 2;
/// The pause before a busy gateway is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(500);
/// How long the name of the other gateways may take to resolve before a comparison is left out.
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a gateway that did not respond is asked after the others.
const SILENT_AGE_MAX: Duration = Duration::from_secs(30);

/// The other gateways of the deployment: takes caches over from them, and compares loads with them.
pub(super) struct Handover {
    settings: HandoverSettings,
    /// The port at which this gateway serves.
    own_port: u16,
    permits: Semaphore,
    /// Decides which gateways are asked if there are many: the same ones as long as they are there, so that their numbers can be compared.
    draw_key: u64,
    /// When the gateways at these addresses were found not to respond.
    silent: Mutex<BTreeMap<SocketAddr, Instant>>,
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
            draw_key: random(),
            silent: Mutex::default(),
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

    /// Asks the other gateways at the same time which caches they have. `found` gets each gateway's as they arrive, and none twice.
    pub(super) async fn each_index(self: &Arc<Self>, found: impl FnMut(Vec<CacheKey>)) {
        match self.addresses().await {
            Ok(addresses) => self.ask_each(addresses, found).await,
            Err(HandoverError::Alone) => {}
            Err(error) => warn!(%error, "no caches are taken over"),
        }
    }

    async fn ask_each(
        self: &Arc<Self>,
        addresses: Vec<SocketAddr>,
        mut found: impl FnMut(Vec<CacheKey>),
    ) {
        let mut indexes = JoinSet::new();
        for address in addresses {
            let this = Arc::clone(self);
            indexes.spawn(async move { (address, this.index_of(address).await) });
        }
        let mut known = BTreeSet::new();
        while let Some(asked) = indexes.join_next().await {
            match asked {
                Ok((_, Ok(mut keys))) => {
                    keys.retain(|key| known.len() < CACHES_MAX && known.insert(key.clone()));
                    found(keys);
                }
                Ok((address, Err(error))) => {
                    warn!(%address, %error, "no caches are taken over from this gateway");
                }
                Err(error) => warn!(%error, "no caches are taken over from a gateway"),
            }
        }
    }

    async fn index_of(&self, address: SocketAddr) -> Result<Vec<CacheKey>, HandoverError> {
        let index = async {
            HandoverPeer::new(&self.settings, address)
                .await?
                .index()
                .await
        };
        let index = index.await;
        self.note(address, index.as_ref().err());
        index
    }

    /// Asks the other gateways at the same time how many watches they have. Those that take no clients, and those that do not respond, are
    /// left out.
    pub(super) async fn peer_watches(self: &Arc<Self>) -> BTreeMap<SocketAddr, u64> {
        let addresses = timeout(RESOLVE_TIME_MAX, self.addresses()).await;
        let addresses = match addresses {
            Ok(Ok(addresses)) => addresses,
            Ok(Err(error)) => {
                debug!(%error, "no other gateways are compared with");
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        let mut loads = JoinSet::new();
        for address in addresses {
            let this = Arc::clone(self);
            loads.spawn(async move { (address, this.load_of(address).await) });
        }
        let mut watches = BTreeMap::new();
        while let Some(asked) = loads.join_next().await {
            match asked {
                Ok((address, Ok(load))) => {
                    watches.extend(load.watches().map(|watches| (address, watches)));
                }
                Ok((address, Err(error))) => {
                    debug!(%address, %error, "this gateway is not compared with");
                }
                Err(error) => debug!(%error, "a gateway is not compared with"),
            }
        }
        watches
    }

    async fn load_of(&self, address: SocketAddr) -> Result<GatewayLoad, HandoverError> {
        HandoverPeer::new(&self.settings, address)
            .await?
            .load()
            .await
    }

    /// How often the number of watches is compared with the other gateways'; `None` for never.
    pub(super) const fn rebalance_interval(&self) -> Option<Duration> {
        self.settings.rebalance_interval
    }

    /// Notes whether the gateway at the address responds.
    fn note(&self, address: SocketAddr, error: Option<&HandoverError>) {
        if error.is_some_and(HandoverError::is_silence) {
            self.silent.lock().insert(address, Instant::now());
        } else {
            self.silent.lock().remove(&address);
        }
    }

    /// Moves those that did not respond lately to the end.
    fn silent_last(&self, addresses: &mut [SocketAddr]) {
        let mut silent = self.silent.lock();
        // Other addresses are no longer those of gateways.
        silent.retain(|address, at| at.elapsed() < SILENT_AGE_MAX && addresses.contains(address));
        addresses.sort_by_key(|address| silent.contains_key(address));
    }

    /// Removes those that did not respond lately, unless no other is left: each of them would hold up each cache.
    fn skip_silent(&self, addresses: &mut Vec<SocketAddr>) {
        let silent = self.silent.lock();
        let is_silent = |address: &SocketAddr| {
            let at = silent.get(address);
            at.is_some_and(|at| at.elapsed() < SILENT_AGE_MAX)
        };
        if !addresses.iter().all(is_silent) {
            addresses.retain(|address| !is_silent(address));
        }
    }

    /// The addresses of the other gateways, in an order that differs from gateway to gateway.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, HandoverError> {
        let url = &self.settings.from;
        let port = match url.scheme_str() {
            Some("http") => 80,
            Some(_) | None => 443,
        };
        let host = url
            .host()
            .unwrap_or_default()
            .trim_matches(|c| matches!(c, '[' | ']'));
        let found: BTreeSet<_> = lookup_host((host, url.port_u16().unwrap_or(port)))
            .await
            .map_err(HandoverError::Unresolved)?
            .collect();
        let others = found.into_iter().filter(|address| !self.is_own(*address));
        let mut others = drawn(others, self.draw_key);
        if others.is_empty() {
            return Err(HandoverError::Alone);
        }
        let first = usize::try_from(random()).unwrap_or_default() % others.len();
        others.rotate_left(first);
        self.silent_last(&mut others);
        Ok(others)
    }

    /// Whether this process serves at the address.
    fn is_own(&self, address: SocketAddr) -> bool {
        address.port() == self.own_port && local_address(address) == Some(address.ip())
    }

    /// Takes a state over from the first gateway that has one that can be used.
    async fn take(&self, wanted: &WantedState) -> Result<(CheckpointContent, u64), HandoverError> {
        // The wait for others has its own bound: a cache that had to wait gets as much time as the first.
        let permit = timeout(self.time_max(), self.permits.acquire()).await;
        let _permit = permit.map_err(|_| HandoverError::TimedOut)?;
        let give_up_at = Instant::now() + self.time_max();
        let mut addresses = timeout_at(give_up_at, self.addresses())
            .await
            .map_err(|_| HandoverError::TimedOut)??;
        self.skip_silent(&mut addresses);
        self.take_from_all(addresses, wanted, give_up_at).await
    }

    /// Asks each of them, and those that are busy again until they have answered for good.
    async fn take_from_all(
        &self,
        mut addresses: Vec<SocketAddr>,
        wanted: &WantedState,
        give_up_at: Instant,
    ) -> Result<(CheckpointContent, u64), HandoverError> {
        let mut first_error = None;
        loop {
            let mut busy = Vec::new();
            match self
                .take_from_any(&addresses, wanted, give_up_at, &mut busy)
                .await
            {
                Err(error) if busy.is_empty() => return Err(first_error.unwrap_or(error)),
                Err(HandoverError::Missing | HandoverError::Busy) => {}
                Err(error) => first_error = first_error.or(Some(error)),
                taken @ Ok(_) => return taken,
            }
            if Instant::now() >= give_up_at {
                return Err(first_error.unwrap_or(HandoverError::TimedOut));
            }
            // The others have answered for good.
            addresses = busy;
            sleep(BUSY_PAUSE).await;
        }
    }

    async fn take_from_any(
        &self,
        addresses: &[SocketAddr],
        wanted: &WantedState,
        give_up_at: Instant,
        busy: &mut Vec<SocketAddr>,
    ) -> Result<(CheckpointContent, u64), HandoverError> {
        let mut first_error = HandoverError::Missing;
        for &address in addresses {
            let taken = timeout_at(give_up_at, self.take_from(address, wanted)).await;
            let Ok(taken) = taken else {
                self.note(address, Some(&HandoverError::TimedOut));
                return Err(HandoverError::TimedOut);
            };
            self.note(address, taken.as_ref().err());
            match taken {
                Ok(taken) => return Ok(taken),
                Err(HandoverError::Missing) => {}
                Err(HandoverError::Busy) => busy.push(address),
                Err(error) => {
                    info!(resource = %wanted.kind.cache_key(), %address, %error, "the cache is not taken over from this gateway");
                    if matches!(first_error, HandoverError::Missing) {
                        first_error = error;
                    }
                }
            }
        }
        Err(first_error)
    }

    async fn take_from(
        &self,
        address: SocketAddr,
        wanted: &WantedState,
    ) -> Result<(CheckpointContent, u64), HandoverError> {
        HandoverPeer::new(&self.settings, address)
            .await?
            .take(wanted)
            .await
    }
}

/// Reads the files that handovers need, so that one that cannot be used is noticed at the start and not at the first handover.
///
/// # Errors
/// Why a file cannot be used, on one line.
pub(super) async fn check_files(settings: &HandoverSettings) -> Result<(), String> {
    // Nothing is sent to it.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 443));
    HandoverPeer::new(settings, address)
        .await
        .map(drop)
        .map_err(|error| one_line(&error))
}

impl CacheHandover {
    /// The state of a cache, from another gateway; `None` if there is none that can be used.
    pub(super) async fn take(&self, wanted: &WantedState) -> Option<CheckpointContent> {
        let (began, resource) = (Instant::now(), wanted.kind.cache_key());
        let error = match self.peers.take(wanted).await {
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

/// So many of the addresses, chosen at random by the key.
fn drawn(addresses: impl Iterator<Item = SocketAddr>, key: u64) -> Vec<SocketAddr> {
    let mut drawn: Vec<_> = addresses.collect();
    drawn.sort_by_cached_key(|address| {
        // Without a key of its own, so that a simulation can be repeated.
        let mut hasher = DefaultHasher::new();
        (key, address).hash(&mut hasher);
        hasher.finish()
    });
    drawn.truncate(PEERS_MAX);
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::LiveLimits;
    use crate::resource::Gvr;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn handover(url: &str, own_port: u16) -> Arc<Handover> {
        let settings = HandoverSettings::without_files(url);
        Handover::new(settings, own_port)
    }

    #[tokio::test]
    async fn a_missing_file_is_noticed_before_anything_is_sent() {
        let mut settings = HandoverSettings::without_files("https://peers.example:8443");
        check_files(&settings).await.unwrap();
        settings.token_file = Some("/nowhere/token".into());
        let error = check_files(&settings).await.unwrap_err();
        assert!(error.contains("/nowhere/token"), "{error}");
        settings.token_file = None;
        settings.ca_file = Some("/nowhere/ca.crt".into());
        let error = check_files(&settings).await.unwrap_err();
        assert!(error.contains("/nowhere/ca.crt"), "{error}");
    }

    #[tokio::test]
    async fn a_gateway_does_not_ask_itself() {
        for host in ["127.0.0.1", "[::1]"] {
            let Ok(listener) = TcpListener::bind(format!("{host}:0")) else {
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let url = format!("http://{host}:{port}/");
            let alone = handover(&url, port).addresses().await;
            assert!(matches!(alone, Err(HandoverError::Alone)), "{alone:?}");
            let others = handover(&url, port.wrapping_add(1)).addresses().await;
            assert_eq!(others.unwrap(), [listener.local_addr().unwrap()]);
        }
    }

    /// An address that accepts and never responds delays no other, and is asked last for a while.
    #[tokio::test]
    async fn a_silent_gateway_holds_no_other_up() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let honest = TcpListener::bind("127.0.0.1:0").unwrap();
        let [silent_at, honest_at] = [&silent, &honest].map(|at| at.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = honest.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let body = r#"{"caches":["pods.v1.json","pods.v1.json"]}"#;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + body).as_bytes()).unwrap();
        });
        let handover = handover(&format!("http://{silent_at}/"), 1);
        let pods = CacheKey::json(&Gvr::new("", "v1", "pods"));
        let (sender, mut keys) = tokio::sync::mpsc::channel(2);
        let asked = handover.ask_each(vec![silent_at, honest_at], |found| {
            sender.try_send(found).unwrap();
        });
        let mut asked = std::pin::pin!(asked);
        let first = tokio::select! {
            biased;
            () = &mut asked => unreachable!("the first gateway is still silent"),
            first = keys.recv() => first,
        };
        assert_eq!(first, Some(vec![pods]));
        asked.await;
        assert!(keys.try_recv().is_err());
        let order = || {
            let mut addresses = [silent_at, honest_at];
            handover.silent_last(&mut addresses);
            addresses
        };
        assert_eq!(order(), [honest_at, silent_at]);
        tokio::time::pause();
        tokio::time::advance(SILENT_AGE_MAX).await;
        assert_eq!(order(), [silent_at, honest_at]);
        drop(silent);
    }

    /// An address that accepts and never responds leaves time to ask another one, however short the time of a handover is.
    #[tokio::test]
    async fn a_silent_gateway_leaves_time_for_others() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [&silent, &other].map(|at| at.local_addr().unwrap());
        let (sender, mut asked) = tokio::sync::mpsc::channel(1);
        std::thread::spawn(move || {
            let (mut stream, _) = other.accept().unwrap();
            let len = stream.read(&mut [0; 4096]).unwrap();
            sender.try_send(len).unwrap();
        });
        let handover = handover(&format!("http://{}/", addresses[0]), 1);
        let kind = crate::cache::samples::kind(crate::resource::Layout::Typed);
        let wanted = &WantedState {
            kind,
            cluster: None,
            limits: LiveLimits::generous(),
        };
        let give_up_at = Instant::now() + handover.time_max();
        let taken = {
            let busy = &mut Vec::new();
            handover
                .take_from_any(&addresses, wanted, give_up_at, busy)
                .await
        };
        assert!(taken.is_err());
        assert!(asked.try_recv().is_ok_and(|len| len > 0));
        drop(silent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_gateway_is_skipped_unless_no_other_is_left() {
        let [one, other] = [1, 2].map(|last| SocketAddr::from(([127, 0, 0, last], 1)));
        let handover = handover("http://127.0.0.1:1/", 2);
        let asked = || {
            let mut addresses = vec![one, other];
            handover.skip_silent(&mut addresses);
            addresses
        };
        assert_eq!(asked(), [one, other]);
        handover.note(one, Some(&HandoverError::TimedOut));
        assert_eq!(asked(), [other]);
        handover.note(other, Some(&HandoverError::TimedOut));
        assert_eq!(asked(), [one, other]);
        handover.note(other, None);
        tokio::time::advance(SILENT_AGE_MAX).await;
        assert_eq!(asked(), [one, other]);
    }

    /// Serves one connection after the other, each with the next response and the last for ever; returns the address and a count of requests.
    fn scripted(responses: &'static [&'static str]) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let index = count.fetch_add(1, Ordering::Relaxed);
                let status = responses.get(index).or_else(|| responses.last()).unwrap();
                let head =
                    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all(head.as_bytes());
            }
        });
        (address, asked)
    }

    /// A gateway that is busy is waited for, also if another one refuses; that one is not asked again.
    #[tokio::test]
    async fn a_busy_gateway_is_waited_for_and_no_other() {
        let (busy, busy_asked) = scripted(&["429 Too Many Requests", "404 Not Found"]);
        let (denying, denying_asked) = scripted(&["403 Forbidden"]);
        let handover = handover(&format!("http://{busy}/"), 1);
        let kind = crate::cache::samples::kind(crate::resource::Layout::Typed);
        let wanted = &WantedState {
            kind,
            cluster: None,
            limits: LiveLimits::generous(),
        };
        let give_up_at = Instant::now() + Duration::from_secs(60);
        let taken = handover
            .take_from_all(vec![busy, denying], wanted, give_up_at)
            .await;
        assert!(matches!(taken, Err(HandoverError::Denied(_))), "{taken:?}");
        assert_eq!(busy_asked.load(Ordering::Relaxed), 2);
        assert_eq!(denying_asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn of_many_gateways_some_are_drawn_at_random_and_stay() {
        let all: BTreeSet<_> = (0..40)
            .map(|last| SocketAddr::from(([10, 0, 0, last], 1)))
            .collect();
        let some = |key| drawn(all.iter().copied(), key);
        let mut ever = BTreeSet::new();
        for key in 0..100 {
            let first = some(key);
            let distinct: BTreeSet<_> = first.iter().copied().collect();
            assert_eq!((first.len(), distinct.len()), (PEERS_MAX, PEERS_MAX));
            // Without one of them, the others are still asked.
            let fewer = drawn(all.iter().copied().filter(|one| *one != first[3]), key);
            assert_eq!(
                fewer.iter().filter(|one| distinct.contains(one)).count(),
                15
            );
            ever.extend(distinct);
        }
        assert_eq!(ever, all);
        assert_eq!(drawn(all.iter().copied().take(3), 7).len(), 3);
    }

    #[test]
    fn a_start_ends_with_its_task() {
        let handover = handover("http://127.0.0.1:1/", 2);
        let guard = handover.settle();
        assert!(!handover.is_settled());
        drop(guard);
        assert!(handover.is_settled());
    }
}
