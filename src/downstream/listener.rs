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
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::conduct::{Conduct, Verdict, failure};
use super::preface::{Begun, NoPreface, speaks_http2};
use super::resources::Resources;
use super::serve::{AnswerBody, Service};
use super::socket::Socket;
use super::stall::Streams;
use super::websocket::Handover;
use crate::metrics::{ConnectionFailure, ListenerMetrics};
use crate::shutdown::Drain;

/// kube-apiserver's patience with a request's head (protocol.md §4.14).
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Keeps a slow client's lag in its cursor instead of in our buffers.
const BUFFER_LEN: usize = 64 << 10;
/// Room for a thousand watches on one connection and some short requests. The API server allows 100; clients at the limit
/// open another connection. Each stream may hold a frame that its client does not take.
const STREAMS_MAX: u32 = 1_200;
/// Long tokens and impersonation headers are legal. Continued heads are bounded by it too.
const HEAD_LIST_LEN: u32 = 128 << 10;
/// What may be on its way to upstream of one request's body, as the API server has it.
const STREAM_WINDOW_LEN: u32 = 256 << 10;
/// The same of all bodies of one connection: eight of them stuck leave it room for no other.
const CONNECTION_WINDOW_LEN: u32 = 2 << 20;
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
        if let Err(error) = set_options(&stream) {
            debug!(%error, "socket options");
        }
        let ended = match &self.tls {
            None => match tokio::time::timeout(HEAD_TIMEOUT, speaks_http2(&stream)).await {
                Ok(Some(true)) => Box::pin(self.http2(Socket(stream))).await,
                Ok(Some(false)) => Box::pin(self.http1(Socket(stream))).await,
                Ok(None) => Ok(()),
                Err(_) => Err(ConnectionFailure::Timeout),
            },
            Some(acceptor) => {
                let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
                match handshake.await {
                    Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                        Box::pin(self.http2(stream)).await
                    }
                    Ok(Ok(stream)) => Box::pin(self.http1(stream)).await,
                    Ok(Err(_)) | Err(_) => Err(ConnectionFailure::Handshake),
                }
            }
        };
        if let Err(reason) = ended {
            debug!(?reason, "a connection failed");
            if let Some(metrics) = metrics {
                metrics.connections_failed.inc(reason);
            }
        }
    }

    async fn http1(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(), ConnectionFailure> {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(BUFFER_LEN);
        let handover = Handover::default();
        let (service, conduct) = self.answering(Some(handover.clone()));
        let connection = builder
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let shut_down = http1::UpgradeableConnection::graceful_shutdown;
        let ended = to_the_end(connection, shut_down, &self.drain, &conduct).await;
        if let Some(websocket) = handover.take() {
            Box::pin(websocket.run()).await;
            return Ok(());
        }
        match ended {
            // To hyper a connection that is kept for another request waits for a head like a new one.
            Err(ConnectionFailure::Timeout) if conduct.has_answered() => Ok(()),
            ended => ended,
        }
    }

    async fn http2(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(), ConnectionFailure> {
        let begun = tokio::time::timeout(HEAD_TIMEOUT, Begun::read(stream)).await;
        let stream = match begun {
            Ok(Ok(stream)) => stream,
            Ok(Err(NoPreface::Gone)) => return Ok(()),
            Ok(Err(NoPreface::Wrong)) => return Err(ConnectionFailure::Protocol),
            Err(_) => return Err(ConnectionFailure::Timeout),
        };
        let metrics = self.service.resources().listener_metrics();
        let builder = http2_builder(metrics.map(|metrics| metrics.streams_stalled.clone()));
        let (service, conduct) = self.answering(None);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let shut_down = http2::Connection::graceful_shutdown;
        to_the_end(connection, shut_down, &self.drain, &conduct).await
    }

    fn answering(&self, handover: Option<Handover>) -> (Answering<R>, Conduct) {
        let metrics = self.service.resources().listener_metrics();
        let conduct = Conduct::new(metrics.map(|metrics| metrics.request_aborts.clone()));
        let service = Answering {
            service: self.service.clone(),
            conduct: conduct.clone(),
            handover,
        };
        (service, conduct)
    }
}

/// HTTP/2 with the limits of this listener. What hyper bounds by itself is not set: resets of streams that nobody has
/// looked at yet (20), of streams with mistakes (1,024), tiny and empty DATA frames, CONTINUATION frames.
fn http2_builder(stalled: Option<IntCounter>) -> http2::Builder<Streams> {
    let mut builder = http2::Builder::new(Streams { stalled });
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_LEN)
        .initial_connection_window_size(CONNECTION_WINDOW_LEN)
        .max_send_buf_size(BUFFER_LEN)
        .max_header_list_size(HEAD_LIST_LEN)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Hyper's view of the service. Its futures are boxed: they are large, and live as long as a forwarded request.
struct Answering<R> {
    service: Service<R>,
    conduct: Conduct,
    /// Where a request leaves the WebSocket that its connection becomes; HTTP/2 has none.
    handover: Option<Handover>,
}

type Answered<R> = Response<AnswerBody<<R as Resources>::Forwarded>>;

impl<R: Resources> hyper::service::Service<Request<Incoming>> for Answering<R> {
    type Response = Answered<R>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answered<R>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if let Some(handover) = &self.handover {
            request.extensions_mut().insert(handover.clone());
        }
        let (service, begun) = (self.service.clone(), self.conduct.begin());
        Box::pin(async move {
            let answer = service.answer(request).await;
            begun.answered();
            Ok(answer)
        })
    }
}

/// Runs a connection to its end; once the drain begins, or the client has given up too much, it takes no more requests.
async fn to_the_end<C>(
    connection: C,
    shut_down: fn(Pin<&mut C>),
    drain: &Drain,
    conduct: &Conduct,
) -> Result<(), ConnectionFailure>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = std::pin::pin!(connection);
    // Cancelling the other branches loses nothing; the connection goes on below.
    let was_sent_away = tokio::select! {
        ended = &mut connection => return judged(ended),
        () = drain.begun() => false,
        () = conduct.reaches(Verdict::SendAway) => true,
    };
    shut_down(connection.as_mut());
    // Whoever does not answer the ping of a GOAWAY may still begin requests: so it is cut in the end.
    let ended = tokio::select! {
        ended = &mut connection => judged(ended),
        () = conduct.reaches(Verdict::Cut) => Err(ConnectionFailure::Flood),
    };
    if was_sent_away {
        return Err(ConnectionFailure::Flood);
    }
    ended
}

fn judged(ended: hyper::Result<()>) -> Result<(), ConnectionFailure> {
    let Err(error) = ended else {
        return Ok(());
    };
    debug!(%error, "connection ended");
    failure(&error).map_or(Ok(()), Err)
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

#[cfg(test)]
mod tests;
