//! Accepts connections and serves HTTP/1.1 or HTTP/2 on them. The `Server` answers the requests.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::server::Server;
use crate::connection::listener::set_options;
use crate::shutdown::Drain;

/// Connections served at the same time; more wait in the kernel's queue. Enough for all clients of a load test, but a runaway test
/// does not use up the file descriptors.
const CONNECTION_COUNT_MAX: usize = 200_000;
/// Pause after a failed accept. The usual cause is a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that has not finished its TLS handshake after this time is disconnected.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Size of a connection's buffers, the same as the gateway's: a slow client's backlog stays in the history, not in buffers.
const BUFFER_LEN: usize = 64 << 10;
/// Concurrent HTTP/2 streams of a connection, the same as the gateway's; kube-apiserver allows 100.
const STREAMS_MAX: u32 = 250;

/// The connection of a request: its peer, and the means to close it after its open requests.
#[derive(Debug)]
pub(super) struct ConnectionInfo {
    pub(super) peer: SocketAddr,
    /// The client's certificate chain; the handshake proved that the client has the key. `auth` verifies the chain for each request.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    goaway: Notify,
    closing: OnceLock<()>,
}

impl ConnectionInfo {
    /// Makes the connection accept no more requests; its open requests are finished.
    pub(super) fn close(&self) {
        // The flag may be set already.
        let _ = self.closing.set(());
        self.goaway.notify_one();
    }

    /// Whether the connection accepts no more requests.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.get().is_some()
    }
}

/// Accepts connections until the drain begins, then lets open requests finish until the drain's deadline. Dropping the future closes
/// all connections.
pub(super) async fn run(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    server: Arc<Server>,
    drain: Drain,
) {
    let permits = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
    let mut connections = JoinSet::new();
    let mut drain_start = std::pin::pin!(drain.begun());
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            break;
        };
        // All branches are cancellation-safe: `accept` loses no connection, `join_next` only removes finished tasks.
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut drain_start => break,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (server, tls, drain) = (Arc::clone(&server), tls.clone(), drain.clone());
        connections.spawn(async move {
            serve_connection(stream, peer, tls, (server, drain)).await;
            drop(permit);
        });
    }
    drop(listener);
    server.reads().close();
    let all = async { while connections.join_next().await.is_some() {} };
    // Connections that are still open at the deadline are closed.
    tokio::select! {
        () = all => {}
        () = drain.expired() => connections.shutdown().await,
    }
}

/// Does the TLS handshake, if there is TLS, and serves the connection.
async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    (server, drain): (Arc<Server>, Drain),
) {
    if let Err(error) = set_options(&stream) {
        tracing::debug!(%error, "cannot set socket options");
    }
    let Some(tls) = tls else {
        return serve_http(stream, (peer, Vec::new()), server, drain).await;
    };
    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        let certificates = stream.get_ref().1.peer_certificates();
        let certificates = certificates.map(|chain| {
            chain
                .iter()
                .map(|certificate| certificate.clone().into_owned())
        });
        let certificates = certificates.map(Iterator::collect).unwrap_or_default();
        serve_http(stream, (peer, certificates), server, drain).await;
    }
}

/// Serves HTTP/1.1 or HTTP/2 on one connection until either side closes it.
async fn serve_http<S>(
    stream: S,
    (peer, certificates): (SocketAddr, Vec<CertificateDer<'static>>),
    server: Arc<Server>,
    drain: Drain,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shared = Arc::new(ConnectionInfo {
        peer,
        certificates,
        goaway: Notify::new(),
        closing: OnceLock::new(),
    });
    let info = Arc::clone(&shared);
    let service = service_fn(move |request| {
        let (server, connection) = (Arc::clone(&server), Arc::clone(&shared));
        async move { server.answer(request, &connection).await }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(BUFFER_LEN);
    builder
        .http2()
        .max_send_buf_size(BUFFER_LEN)
        .max_concurrent_streams(STREAMS_MAX);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut drain_start = std::pin::pin!(drain.begun());
    let mut closing = false;
    loop {
        // All branches are cancellation-safe: the connection is only borrowed and is polled again in the next turn.
        tokio::select! {
            outcome = connection.as_mut() => {
                // An error means that the peer broke the connection, which needs no log line.
                outcome.unwrap_or_default();
                return;
            }
            () = info.goaway.notified(), if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut drain_start, if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
