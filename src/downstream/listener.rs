//! Accepts connections and speaks HTTP/1.1 or HTTP/2 on them, chosen by ALPN under TLS and by the first bytes without.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::resources::Resources;
use super::serve::{AnswerBody, Service};
use super::socket::Socket;
use super::websocket::{self, Handover};
use crate::metrics::{ConnectionFailure, ListenerMetrics};
use crate::shutdown::Drain;

/// kube-apiserver's patience with a request's head (protocol.md §4.14).
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Keeps a slow client's lag in its cursor instead of in our buffers.
const BUFFER_LEN: usize = 64 << 10;
/// The API server allows 100; more lets a client multiplex over fewer connections.
const STREAMS_MAX: u32 = 250;
/// Long tokens and impersonation headers are legal.
const HEAD_LIST_LEN: u32 = 128 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// A peer that neither acknowledges nor takes anything for so long is gone.
const USER_TIMEOUT: Duration = Duration::from_secs(120);
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Unsent bytes that the kernel holds for a slow client.
const UNSENT_LEN: u32 = 128 << 10;
/// More than the files that a process may usually open: the kernel's limit counts first.
const CONNECTIONS_MAX: usize = 1 << 20;
/// While no file descriptors are left, accepting again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the drain begins, then lets open requests finish until its deadline.
pub async fn run<R: Resources>(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    service: Service<R>,
    drain: Drain,
) {
    let tls = tls.map(TlsAcceptor::from);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut begun = std::pin::pin!(drain.begun());
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            break;
        };
        // Both branches are safe to cancel: accept loses no connection, joining reaps finished ones.
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut begun => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = Connection {
                    tls: tls.clone(),
                    service: service.clone(),
                    drain: drain.clone(),
                };
                connections.spawn(async move {
                    connection.run(stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                if let Some(metrics) = service.resources().listener_metrics() {
                    metrics.connections_failed.inc(ConnectionFailure::Accept);
                }
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // What has not ended by the deadline is cut.
    tokio::select! {
        () = all => {}
        () = drain.expired() => connections.shutdown().await,
    }
}

/// A connection, counted while it is open.
struct Open<'a>(&'a ListenerMetrics);

impl<'a> Open<'a> {
    fn count(metrics: &'a ListenerMetrics) -> Self {
        metrics.connections_accepted.inc();
        metrics.connections.inc();
        Self(metrics)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

struct Connection<R> {
    tls: Option<TlsAcceptor>,
    service: Service<R>,
    drain: Drain,
}

impl<R: Resources> Connection<R> {
    async fn run(self, stream: TcpStream) {
        let resources = Arc::clone(self.service.resources());
        let metrics = resources.listener_metrics();
        let _open = metrics.map(Open::count);
        let failed = || {
            if let Some(metrics) = metrics {
                metrics.connections_failed.inc(ConnectionFailure::Handshake);
            }
        };
        if let Err(error) = set_options(&stream) {
            debug!(%error, "socket options");
        }
        let websocket = match &self.tls {
            None => {
                let Some(http2) = starts_with_preface(&stream).await else {
                    return;
                };
                if http2 {
                    Box::pin(self.http2(Socket(stream))).await;
                    None
                } else {
                    Box::pin(self.http1(Socket(stream))).await
                }
            }
            Some(acceptor) => {
                let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
                let Ok(Ok(stream)) = handshake.await else {
                    debug!("TLS handshake failed or took too long");
                    failed();
                    return;
                };
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                if http2 {
                    Box::pin(self.http2(stream)).await;
                    None
                } else {
                    Box::pin(self.http1(stream)).await
                }
            }
        };
        if let Some(websocket) = websocket {
            Box::pin(websocket.run()).await;
        }
    }

    /// Returns the WebSocket that the connection has become, if one of its requests asked for that.
    async fn http1(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Option<Box<websocket::Socket>> {
        let handover = Handover::default();
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(BUFFER_LEN);
        let answering = Answering(self.service, Some(handover.clone()));
        let connection = builder
            .serve_connection(TokioIo::new(stream), answering)
            .with_upgrades();
        let shut_down = http1::UpgradeableConnection::graceful_shutdown;
        until_drained(connection, shut_down, &self.drain).await;
        handover.take()
    }

    async fn http2(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_send_buf_size(BUFFER_LEN)
            .max_header_list_size(HEAD_LIST_LEN)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let answering = Answering(self.service, None);
        let connection = builder.serve_connection(TokioIo::new(stream), answering);
        until_drained(
            connection,
            http2::Connection::graceful_shutdown,
            &self.drain,
        )
        .await;
    }
}

/// Hyper's view of the service. Its futures are boxed: they are large, and live as long as a forwarded request.
struct Answering<R>(Service<R>, Option<Handover>);

type Answered<R> = Response<AnswerBody<<R as Resources>::Forwarded>>;

impl<R: Resources> hyper::service::Service<Request<Incoming>> for Answering<R> {
    type Response = Answered<R>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answered<R>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let service = self.0.clone();
        if let Some(handover) = &self.1 {
            request.extensions_mut().insert(handover.clone());
        }
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

/// Runs a connection to its end; once the drain begins it takes no more requests.
async fn until_drained<C>(connection: C, shut_down: fn(Pin<&mut C>), drain: &Drain)
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = std::pin::pin!(connection);
    let mut begun = std::pin::pin!(drain.begun());
    // Cancelling the drain's branch loses nothing; the connection goes on in the other.
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = &mut begun => {
            shut_down(connection.as_mut());
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection ended");
    }
}

/// Whether the client speaks HTTP/2 with prior knowledge: no HTTP/1.1 method starts like its preface.
/// `None` when it says nothing in time, or leaves.
async fn starts_with_preface(stream: &TcpStream) -> Option<bool> {
    const PREFACE: &[u8] = b"PRI ";
    let peek = async {
        let mut first = [0; PREFACE.len()];
        let mut seen_before = 0;
        loop {
            let seen = stream.peek(&mut first).await.ok()?;
            if seen == 0 {
                return None;
            }
            if first[..seen] != PREFACE[..seen] {
                return Some(false);
            }
            if seen == PREFACE.len() {
                return Some(true);
            }
            // Peeking is ready again at once while bytes wait: a client that sends them singly is given time, unless it
            // has said that no more is coming, which peeking cannot tell.
            if seen == seen_before {
                if stream
                    .ready(Interest::READABLE)
                    .await
                    .ok()?
                    .is_read_closed()
                {
                    return None;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            seen_before = seen;
        }
    };
    tokio::time::timeout(HEAD_TIMEOUT, peek)
        .await
        .ok()
        .flatten()
}

/// Options of a client's socket: nothing waits for an acknowledgement, a dead peer is noticed, and the kernel holds
/// little for a slow one.
///
/// # Errors
/// What the system refuses; the connection works all the same.
pub fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_keepalive(
        &socket2::TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE),
    )?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_tcp_notsent_lowat(UNSENT_LEN)
}
