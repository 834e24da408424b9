//! Connections to the API server by purpose. HTTP/2 where the server offers it by ALPN, HTTP/1.1 otherwise and for upgrades.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tower::{BoxError, Service};

use super::connection::{self, CONNECT_TIMEOUT, UpstreamConnection};
use super::{ConnectError, RequestBody, ResponseBody, SendError};

/// What the connections of a lane are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LanePurpose {
    /// The gateway's lists, reviews, discovery.
    Call,
    /// The gateway's watches.
    Watch,
    /// Callers' requests that end soon.
    Forward,
    /// The same, each over a connection of its own: HTTP/1.1 only.
    ForwardApart,
    /// Callers' watches, logs and other requests that last.
    ForwardWatch,
    /// The same, each over a connection of its own: HTTP/1.1 only.
    ForwardWatchApart,
    /// Callers' upgrades: HTTP/1.1 only.
    Upgrade,
}

impl LanePurpose {
    /// Requests in flight on one connection. Servers allow 100 streams by default (docs/PROTOCOL.md §4.14); what is over
    /// waits inside the HTTP/2 layer for a stream to end, behind watches for ever. So we stay below and open another
    /// connection. Watches are few and big: they share a connection with a handful of others while connections can be had.
    const fn places_per_connection(self) -> usize {
        match self {
            Self::Call
            | Self::Forward
            | Self::ForwardApart
            | Self::ForwardWatch
            | Self::ForwardWatchApart
            | Self::Upgrade => 90,
            Self::Watch => 8,
        }
    }

    /// HTTP/2 stream window. The gateway always reads its own streams, so a wide one is safe. Callers may stall: 90
    /// windows of theirs must fit into the connection's window, or a few stalled callers stop all the others. A client that
    /// follows a log may stall for as long as it likes, and what has come for it waits in memory meanwhile: there the window is small.
    const fn stream_window_len(self) -> u32 {
        match self {
            Self::Call | Self::Watch => 16 << 20,
            Self::Forward | Self::ForwardApart | Self::Upgrade => 512 << 10,
            Self::ForwardWatch | Self::ForwardWatchApart => 128 << 10,
        }
    }

    /// Connections of a pool that are kept while nothing is sent on them. Watches of their own connections may be as many as there
    /// are files for: none is kept that carries none.
    const fn idle_connections_max(self) -> usize {
        match self {
            Self::Call
            | Self::Watch
            | Self::Forward
            | Self::ForwardApart
            | Self::ForwardWatch
            | Self::Upgrade => 32,
            Self::ForwardWatchApart => 0,
        }
    }

    /// Whether HTTP/2 is not even offered.
    const fn is_http1_only(self) -> bool {
        match self {
            Self::ForwardApart | Self::ForwardWatchApart | Self::Upgrade => true,
            Self::Call | Self::Watch | Self::Forward | Self::ForwardWatch => false,
        }
    }

    /// Whether what comes is read as slowly as a client, or a pod, likes.
    #[cfg(target_os = "linux")]
    const fn may_pause(self) -> bool {
        match self {
            Self::ForwardWatch | Self::ForwardWatchApart | Self::Upgrade => true,
            Self::Call | Self::Watch | Self::Forward | Self::ForwardApart => false,
        }
    }
}

const _: () = assert!(
    LanePurpose::Forward.places_per_connection() as u64
        * LanePurpose::Forward.stream_window_len() as u64
        <= CONNECTION_WINDOW_LEN as u64
);

/// What all lanes of one identity share.
pub(super) struct TransportSettings {
    pub(super) tls: ClientConfig,
    /// The name to verify the certificate against instead of the URL's host (`tls-server-name`).
    pub(super) server_name: Option<String>,
}

/// A growing set of connection pools for one purpose. Each is filled as far as the purpose likes before there is another one; once
/// there are [`POOLS_MAX`], all of them are filled up to [`PLACES_MAX`].
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
        let (client, place) = self.place().ok_or(SendError::Saturated)?;
        let response = connection::answer(&client, request).await?;
        Ok(response.map(|incoming| ResponseBody::new(incoming, place)))
    }

    /// The first pool with a free place, so that few connections are full rather than many half empty.
    pub(super) fn place(&self) -> Option<(PooledClient, tokio::sync::OwnedSemaphorePermit)> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = match pools.len() {
            0..POOLS_MAX => PLACES_MAX - self.purpose.places_per_connection(),
            _ => 0,
        };
        let mut open = pools
            .iter()
            .filter(|pool| pool.places.available_permits() > spare);
        let free = open.find_map(|pool| {
            let place = pool.places.clone().try_acquire_owned().ok()?;
            Some((pool.client.clone(), place))
        });
        if free.is_some() || pools.len() >= POOLS_MAX {
            return free;
        }
        let pool = Pool {
            client: self.client(),
            places: Arc::new(Semaphore::new(PLACES_MAX)),
        };
        let place = pool.places.clone().try_acquire_owned().ok()?;
        let client = pool.client.clone();
        pools.push(pool);
        Some((client, place))
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

/// One HTTP/2 connection (two while one is draining), or as many of HTTP/1.1 as there are requests in flight.
struct Pool {
    client: PooledClient,
    places: Arc<Semaphore>,
}

type PooledClient = legacy::Client<Connector, RequestBody>;

/// Connects within [`CONNECT_TIMEOUT`], the TLS handshake included.
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

/// A dead peer is noticed by TCP itself, which also covers HTTP/1.1 watches and tunnels, where there is no ping. Tunnels and
/// requests that last have keep-alive alone: the kernel counts a shut window as silence, and what a pod reads it may read slowly.
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

/// rustls asks for a process-wide provider; a second installation is refused, which is as good.
pub(super) fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

/// 5,760 requests in flight per lane. Short requests a server with default limits refuses before that, watches it does not:
/// hence a lane for each, and shares of clients in the pass-through.
const POOLS_MAX: usize = 64;

/// Requests in flight on one connection at most: servers allow 100 streams by default.
const PLACES_MAX: usize = 90;

/// client-go pings after 30 s of silence and gives up 15 s later (docs/PROTOCOL.md §4.14).
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Below the 90 s after which the server closes idle connections, so that it is we who close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

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
        let mut places = Vec::new();
        let few = LanePurpose::Watch.places_per_connection();
        places.extend((0..few).map(|_| lane.place().unwrap()));
        assert_eq!(lane.pools.lock().unwrap().len(), 1, "few share one");
        while let Some(place) = lane.place() {
            places.push(place);
        }
        assert_eq!(places.len(), POOLS_MAX * PLACES_MAX);
        assert_eq!(lane.pools.lock().unwrap().len(), POOLS_MAX);
        places.pop();
        assert!(lane.place().is_some());
    }
}
