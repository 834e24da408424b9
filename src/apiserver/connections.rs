//! Accepts connections and speaks HTTP/1.1 or HTTP/2 on them. What is answered is for the server to say.

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

/// More connections than this wait in the kernel's queue: a load test's whole swarm fits, a runaway test does not take
/// all file descriptors.
const CONNECTION_COUNT_MAX: usize = 200_000;
/// Pause after a failed accept, which is most often a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that does not finish its TLS handshake by then is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// As the gateway has it: a slow client's lag stays in its cursor.
const BUFFER_LEN: usize = 64 << 10;
/// As the gateway has it; the real server takes 100.
const STREAMS_MAX: u32 = 250;

/// Who a request came from, and how to let its connection take no more.
#[derive(Debug)]
pub(super) struct ConnectionInfo {
    pub(super) peer: SocketAddr,
    /// The client's chain, of which it holds the key.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    goaway: Notify,
    closing: OnceLock<()>,
}

impl ConnectionInfo {
    /// Lets it take no more requests.
    pub(super) fn close(&self) {
        // Closed twice is closed.
        let _ = self.closing.set(());
        self.goaway.notify_one();
    }

    /// Whether it takes no more requests.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.get().is_some()
    }
}

/// Accepts connections until the drain begins, then lets open requests finish until its deadline. Dropping it ends
/// them all.
pub(super) async fn run(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    server: Arc<Server>,
    drain: Drain,
) {
    let seats = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
    let mut connections = JoinSet::new();
    let mut begun = std::pin::pin!(drain.begun());
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
            break;
        };
        // All are safe to cancel: accept loses no connection, joining reaps finished ones.
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut begun => break,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (server, tls, drain) = (Arc::clone(&server), tls.clone(), drain.clone());
        connections.spawn(async move {
            accepted_one(stream, peer, tls, (server, drain)).await;
            drop(seat);
        });
    }
    drop(listener);
    server.reads().close();
    let all = async { while connections.join_next().await.is_some() {} };
    // What has not ended by the deadline is cut.
    tokio::select! {
        () = all => {}
        () = drain.expired() => connections.shutdown().await,
    }
}

async fn accepted_one(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    (server, drain): (Arc<Server>, Drain),
) {
    if let Err(error) = set_options(&stream) {
        tracing::debug!(%error, "socket options");
    }
    let Some(tls) = tls else {
        return serve(stream, (peer, Vec::new()), server, drain).await;
    };
    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        let certificates = stream.get_ref().1.peer_certificates();
        let certificates =
            certificates.map(|chain| chain.iter().map(|one| one.clone().into_owned()));
        let certificates = certificates.map(Iterator::collect).unwrap_or_default();
        serve(stream, (peer, certificates), server, drain).await;
    }
}

/// Serves HTTP/1.1 or HTTP/2 on one connection until either side has enough.
async fn serve<S>(
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
    let told = Arc::clone(&shared);
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
    let mut begun = std::pin::pin!(drain.begun());
    let mut closing = false;
    loop {
        // All are safe to cancel: the connection is polled again, the notice is taken once.
        tokio::select! {
            outcome = connection.as_mut() => {
                // A peer that breaks off is no event here.
                outcome.unwrap_or_default();
                return;
            }
            () = told.goaway.notified(), if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut begun, if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
