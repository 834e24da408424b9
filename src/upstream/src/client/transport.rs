//! Connections to the API server by purpose. HTTP/2 where the server offers it by ALPN, HTTP/1.1 otherwise and for upgrades.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::sync::Semaphore;
use tower_service::Service;

use super::connection::{self, CONNECT_TIMEOUT, UpstreamConnection};
use super::{ConnectError, RequestBody, ResponseBody, SendError};
use crate::net::{HttpConnector, TcpStream};

/// What the connections of a lane are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LanePurpose {
    /// The gateway's lists, reviews, discovery.
    Call,
    /// Checks of the server, which must not wait for the requests that they decide about.
    Check,
    /// The gateway's watches.
    Watch,
    /// Short requests of callers.
    Forward,
    /// Short requests of callers, each on a connection of its own: HTTP/1.1 only.
    ForwardApart,
    /// Watches, logs and other long-running requests of callers.
    ForwardWatch,
    /// Long-running requests of callers, each on a connection of its own: HTTP/1.1 only.
    ForwardWatchApart,
    /// Upgrades of callers: HTTP/1.1 only.
    Upgrade,
}

impl LanePurpose {
    /// Requests in flight on one connection. Servers allow 100 streams by default (docs/PROTOCOL.md §4.14). The HTTP/2
    /// layer holds back requests beyond that until a stream ends, which on a connection full of watches may never happen,
    /// so the limit is lower and the next request opens another connection. The gateway's own watches are few and large, so
    /// only a handful share a connection while more connections may be opened.
    const fn requests_per_connection(self) -> usize {
        match self {
            Self::Call
            | Self::Check
            | Self::Forward
            | Self::ForwardApart
            | Self::ForwardWatch
            | Self::ForwardWatchApart
            | Self::Upgrade => 90,
            Self::Watch => 8,
        }
    }

    /// HTTP/2 stream window, bytes. The gateway always reads its own streams, so their window may be large. Callers may
    /// stall: the windows of 90 of their streams must fit into the connection's window, or a few stalled callers would stop
    /// all others. A client that follows a log may stall for as long as it likes, and what has arrived for it stays in
    /// memory meanwhile, so the window of long-running requests is small.
    const fn stream_window_len(self) -> u32 {
        match self {
            Self::Call | Self::Watch => 16 << 20,
            Self::Check | Self::Forward | Self::ForwardApart | Self::Upgrade => 512 << 10,
            Self::ForwardWatch | Self::ForwardWatchApart => 128 << 10,
        }
    }

    /// Idle connections that a pool keeps. Watches with a connection of their own may be as many as the process may open
    /// files, so none of their connections is kept idle.
    const fn idle_connections_max(self) -> usize {
        match self {
            Self::Call
            | Self::Watch
            | Self::Forward
            | Self::ForwardApart
            | Self::ForwardWatch
            | Self::Upgrade => 32,
            Self::Check => 1,
            Self::ForwardWatchApart => 0,
        }
    }

    /// Whether HTTP/2 is not offered to the server.
    const fn is_http1_only(self) -> bool {
        match self {
            Self::ForwardApart | Self::ForwardWatchApart | Self::Upgrade => true,
            Self::Call | Self::Check | Self::Watch | Self::Forward | Self::ForwardWatch => false,
        }
    }

    /// Whether the receiver, a client or a pod, may read as slowly as it likes.
    #[cfg(all(target_os = "linux", not(feature = "sim")))]
    const fn may_pause(self) -> bool {
        match self {
            Self::ForwardWatch | Self::ForwardWatchApart | Self::Upgrade => true,
            Self::Call | Self::Check | Self::Watch | Self::Forward | Self::ForwardApart => false,
        }
    }
}

const _: () = assert!(
    LanePurpose::Forward.requests_per_connection() as u64
        * LanePurpose::Forward.stream_window_len() as u64
        <= CONNECTION_WINDOW_LEN as u64
);

/// Settings that all lanes of one identity share.
pub(super) struct TransportSettings {
    pub(super) tls: ClientConfig,
    /// The name to verify the certificate against instead of the URL's host (`tls-server-name`).
    pub(super) server_name: Option<String>,
}

/// A growing set of connection pools for one purpose. A pool is filled up to [`LanePurpose::requests_per_connection`]
/// before another one is opened. Once there are [`POOLS_MAX`], all of them are filled up to [`PERMITS_PER_POOL`].
pub(super) struct ConnectionLane {
    purpose: LanePurpose,
    connector: Connector,
    pools: Mutex<Vec<Pool>>,
}

impl ConnectionLane {
    pub(super) fn new(
        settings: &TransportSettings,
        purpose: LanePurpose,
    ) -> Result<Self, ConnectError> {
        Ok(Self {
            purpose,
            connector: Connector::new(settings, purpose)?,
            pools: Mutex::new(Vec::new()),
        })
    }

    /// Sends one request with an absolute URI.
    pub(super) async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, SendError> {
        let (client, permit) = self.acquire().ok_or(SendError::Saturated)?;
        let response = connection::send(&client, request).await?;
        Ok(response.map(|incoming| ResponseBody::new(incoming, permit)))
    }

    /// Lets further requests open new connections. Those in flight continue.
    pub(super) fn renew(&self) {
        self.pools.lock().clear();
    }

    /// Takes a permit of the first pool that has a free one, so that few connections are full rather than many half empty.
    /// `None` if all permits are taken.
    pub(super) fn acquire(&self) -> Option<(PooledClient, tokio::sync::OwnedSemaphorePermit)> {
        let mut pools = self.pools.lock();
        let reserve = match pools.len() {
            0..POOLS_MAX => PERMITS_PER_POOL - self.purpose.requests_per_connection(),
            _ => 0,
        };
        let mut open = pools
            .iter()
            .filter(|pool| pool.permits.available_permits() > reserve);
        let free = open.find_map(|pool| {
            let permit = pool.permits.clone().try_acquire_owned().ok()?;
            Some((pool.client.clone(), permit))
        });
        if free.is_some() || pools.len() >= POOLS_MAX {
            return free;
        }
        let pool = Pool {
            client: self.client(),
            permits: Arc::new(Semaphore::new(PERMITS_PER_POOL)),
        };
        let permit = pool.permits.clone().try_acquire_owned().ok()?;
        let client = pool.client.clone();
        pools.push(pool);
        Some((client, permit))
    }

    fn client(&self) -> PooledClient {
        legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(self.purpose.idle_connections_max())
            .http1_max_headers(HEADERS_MAX)
            .http2_initial_stream_window_size(self.purpose.stream_window_len())
            .http2_initial_connection_window_size(CONNECTION_WINDOW_LEN)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_max_header_list_size(HEADER_LIST_LEN_MAX)
            .build(self.connector.clone())
    }
}

/// One HTTP/2 connection (two while one is draining), or as many HTTP/1.1 connections as there are requests in flight.
struct Pool {
    client: PooledClient,
    permits: Arc<Semaphore>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

type PooledClient = legacy::Client<Connector, RequestBody>;

/// Connects within [`CONNECT_TIMEOUT`], including the TLS handshake.
#[derive(Clone)]
pub(super) struct Connector {
    https: HttpsConnector<HttpConnector>,
}

impl Connector {
    fn new(settings: &TransportSettings, purpose: LanePurpose) -> Result<Self, ConnectError> {
        let mut builder = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(settings.tls.clone())
            .https_or_http();
        if let Some(name) = &settings.server_name {
            let server_name = ServerName::try_from(name.clone())
                .map_err(|_| ConnectError::BadServerName { name: name.clone() })?;
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(server_name));
        }
        let https = match purpose.is_http1_only() {
            true => builder.enable_http1().wrap_connector(tcp(purpose)),
            false => builder.enable_all_versions().wrap_connector(tcp(purpose)),
        };
        Ok(Self { https })
    }
}

impl Service<Uri> for Connector {
    type Response = UpstreamConnection<MaybeHttpsStream<TokioIo<TcpStream>>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(cx)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connecting = self.https.call(target);
        Box::pin(async move {
            let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
                .await
                .map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
            Ok(UpstreamConnection::new(stream))
        })
    }
}

/// TCP itself detects a dead peer, also for HTTP/1.1 watches and tunnels, which have no ping. Tunnels and long-running
/// requests get only keep-alive, no user timeout: the kernel counts a closed receive window as silence, and the receiver
/// may read slowly.
#[cfg(not(feature = "sim"))]
fn tcp(purpose: LanePurpose) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(PING_INTERVAL));
    tcp.set_keepalive_interval(Some(Duration::from_secs(5)));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    if !purpose.may_pause() {
        tcp.set_tcp_user_timeout(Some(PING_INTERVAL + PING_TIMEOUT));
    }
    tcp
}

#[cfg(feature = "sim")]
fn tcp(_: LanePurpose) -> HttpConnector {
    HttpConnector
}

/// rustls needs a process-wide provider. If another thread has installed one meanwhile, that one is used.
pub(super) fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

/// Allows 5,760 requests in flight per lane. A server with default limits refuses short requests before that, but not
/// watches: therefore each kind has its own lane, and the pass-through limits the share of each client.
const POOLS_MAX: usize = 64;

/// Most requests in flight on one connection: servers allow 100 streams by default.
const PERMITS_PER_POOL: usize = 90;

/// client-go pings after 30 s of silence and gives up 15 s later (docs/PROTOCOL.md §4.14).
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Below the 90 s after which the server closes idle connections, so that the gateway closes them first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// HTTP/2 connection window, bytes.
const CONNECTION_WINDOW_LEN: u32 = 64 << 20;

/// The server's own limit on header bytes is 1 MiB.
const HEADER_LIST_LEN_MAX: u32 = 1 << 20;
const HEADERS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> TransportSettings {
        install_crypto_provider();
        TransportSettings {
            tls: ClientConfig::builder()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth(),
            server_name: None,
        }
    }

    #[cfg(not(feature = "sim"))]
    #[tokio::test]
    async fn a_tunnel_may_be_read_from_as_slowly_as_its_other_end_likes() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target: Uri = format!("http://{}/", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        for (purpose, expected) in [
            (LanePurpose::Upgrade, None),
            (LanePurpose::ForwardWatch, None),
            (LanePurpose::ForwardWatchApart, None),
            (LanePurpose::Forward, Some(PING_INTERVAL + PING_TIMEOUT)),
        ] {
            let mut connector = Connector::new(&settings(), purpose).unwrap();
            let connection = connector.call(target.clone()).await.unwrap();
            let MaybeHttpsStream::Http(stream) = connection.bytes() else {
                panic!("clear text");
            };
            let socket = socket2::SockRef::from(stream.inner());
            assert_eq!(socket.tcp_user_timeout().unwrap(), expected, "{purpose:?}");
            assert!(socket.keepalive().unwrap());
        }
    }

    #[tokio::test]
    async fn watches_fill_connections_up_when_no_more_may_be_opened() {
        let settings = settings();
        let lane = ConnectionLane::new(&settings, LanePurpose::Watch).unwrap();
        let mut permits = Vec::new();
        let few = LanePurpose::Watch.requests_per_connection();
        permits.extend((0..few).map(|_| lane.acquire().unwrap()));
        assert_eq!(lane.pools.lock().len(), 1, "few share one");
        while let Some(permit) = lane.acquire() {
            permits.push(permit);
        }
        assert_eq!(permits.len(), POOLS_MAX * PERMITS_PER_POOL);
        assert_eq!(lane.pools.lock().len(), POOLS_MAX);
        permits.pop();
        assert!(lane.acquire().is_some());
    }
}
