//! Connections: accepting them from any kind of network, TLS, and HTTP/1.1 or HTTP/2 as the client speaks.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::server::Server;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after an error of the listener, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Streams of one HTTP/2 connection. kube-apiserver allows 100; the load test's swarms need more.
const STREAMS_MAX: u32 = 1_000;
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Where connections come from: a socket, or a simulated network.
pub trait Listener: Send + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection. It must be safe to cancel.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;

    /// The address that is listened on.
    ///
    /// # Errors
    /// The operating system's.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

impl Listener for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        stream.set_nodelay(true)?;
        Ok((stream, peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

/// What a request knows of its connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    /// The client's certificates.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// Notified to accept no more requests.
    pub(super) go_away: Notify,
}

/// Serves connections until `stop` becomes true; then waits for the open ones. Cancelling it closes them.
pub(super) async fn serve<L: Listener>(
    mut listener: L,
    tls: Option<Arc<rustls::ServerConfig>>,
    server: Arc<Server>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((io, peer)) => {
                    let (tls, server, stop) = (tls.clone(), Arc::clone(&server), stop.clone());
                    connections.spawn(async move {
                        if let Err(error) = connection(io, peer, tls, server, stop).await {
                            tracing::debug!(%peer, %error, "a connection has ended");
                        }
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Waits until the server is to stop. Without a sender only its end stops it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|is_stopped| *is_stopped).await.is_err() {
        std::future::pending().await
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn connection<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    mut io: Io,
    peer: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
    server: Arc<Server>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), ConnectionError> {
    let mut connection = Connection {
        peer,
        certificates: Vec::new(),
        go_away: Notify::new(),
    };
    if let Some(config) = tls {
        let handshake = TlsAcceptor::from(config).accept(io);
        let io = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await??;
        let (_, session) = io.get_ref();
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        connection.certificates = session.peer_certificates().unwrap_or_default().to_vec();
        return http(io, is_http2, connection, server, stop).await;
    }
    let mut start = [0; HTTP2_PREFACE.len()];
    let mut len = 0;
    while len < start.len() && start[..len] == HTTP2_PREFACE[..len] {
        let count = tokio::select! {
            count = io.read(&mut start[len..]) => count?,
            // A client that has sent no request yet is not waited for.
            () = stopped(&mut stop) => 0,
        };
        if count == 0 {
            return Ok(());
        }
        len += count;
    }
    let (read, write) = tokio::io::split(io);
    let read = io::Cursor::new(start[..len].to_vec()).chain(read);
    let io = tokio::io::join(read, write);
    http(io, start == *HTTP2_PREFACE, connection, server, stop).await
}

async fn http<Io: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: Io,
    is_http2: bool,
    connection: Connection,
    server: Arc<Server>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), ConnectionError> {
    let connection = Arc::new(connection);
    let go_away = Arc::clone(&connection);
    let service = service_fn(move |request| {
        let (server, connection) = (Arc::clone(&server), Arc::clone(&connection));
        async move { server.answer(request, &connection).await }
    });
    let is_ending = async {
        tokio::select! {
            () = go_away.go_away.notified() => {}
            () = stopped(&mut stop) => {}
        }
    };
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX);
        let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(io), service));
        tokio::select! {
            ended = served.as_mut() => return Ok(ended?),
            () = is_ending => served.as_mut().graceful_shutdown(),
        }
        Ok(served.await?)
    } else {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new());
        let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(io), service));
        tokio::select! {
            ended = served.as_mut() => return Ok(ended?),
            () = is_ending => served.as_mut().graceful_shutdown(),
        }
        Ok(served.await?)
    }
}
