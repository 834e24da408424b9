//! Accepts connections and speaks HTTP/1.1 or HTTP/2 on them, chosen by ALPN under TLS and by the first bytes without.

mod accept_errors;
mod head_timer;
mod socket;

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error};

use super::hijack::{HijackSlot, Hijacked};
use super::preface::{NoPreface, PREFACE, PrefacedStream, speaks_http2};
use super::service::{AcceptDecision, HyperService};
use crate::admission::Admission;
use crate::audit::request::ConnectionAddress;
use crate::auth::caller::PeerIdentity;
use crate::config::OpenFiles;
use crate::fairness::{Peer, Permit, Permits};
use crate::metrics::{ConnectionFailure, ListenerMetrics, TaskKind};
use crate::serve::Service;
use crate::serve::resources::Resources;
use crate::shutdown::Drain;
use crate::transport::abort_limit::{AbortAction, AbortLimit, failure};
use crate::transport::stall::{self, StallExecutor};
use crate::transport::{
    CoalescedConnection, ControlFrameMeter, Traffic, Transport, WriteCoalescer, linger,
};
use crate::watch::Watch;
use crate::watch::delivery::Delivery;
use accept_errors::AcceptErrors;
use head_timer::{HEAD_TIMEOUT, HeadTimeout, HeadTimer};
pub use socket::{bind, set_options};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Keeps a slow client's lag in its cursor instead of in our buffers.
const BUFFER_LEN: usize = 64 << 10;
/// Room for a thousand watches on one connection and some short requests. The API server allows 100; clients at the limit
/// open another connection. Each stream may hold a frame that its client does not take.
const STREAMS_MAX: u32 = 1_200;
/// Header fields of an HTTP/1.1 request. A user's groups come in one each when somebody acts as them.
const HEADERS_MAX: usize = 512;
/// Long tokens and impersonation headers are legal. Continued heads are bounded by it too.
const HEAD_LIST_LEN: u32 = 128 << 10;
/// What may be on its way to upstream of one request's body, as the API server has it.
const STREAM_WINDOW_LEN: u32 = 256 << 10;
/// The same of all bodies of one connection: eight of them stuck leave it room for no other.
const CONNECTION_WINDOW_LEN: u32 = 2 << 20;
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// More than the files that a process may usually open: the kernel's limit counts first.
const CONNECTIONS_MAX: usize = 1 << 20;
/// So long that telling may take, handshake included.
const REFUSAL_TIME: Duration = Duration::from_secs(5);
/// While no file descriptors are left, accepting again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// TLS settings of connections to come: whoever replaces them does not disturb connections that are open.
pub type ServerTls = Arc<ArcSwap<rustls::ServerConfig>>;

/// Serves until the drain begins, then lets open requests finish until its deadline.
pub async fn run<R: Resources>(
    listener: TcpListener,
    tls: Option<ServerTls>,
    service: Service<R>,
    drain: Drain,
) {
    let metrics = service.resources().listener_metrics();
    let delivery = delivery(metrics);
    let connections_max = service
        .admission()
        .map_or(CONNECTIONS_MAX, Admission::connections_max);
    let places = Permits::new(connections_max);
    let mut accept_errors = AcceptErrors::default();
    // Who comes while so many are told that there are too many is closed without a word.
    let refusals = Arc::new(Semaphore::new(OpenFiles::of_process(0).refusals));
    let mut connections = JoinSet::new();
    let mut begun = std::pin::pin!(drain.begun());
    loop {
        // Both branches are safe to cancel: accept loses no connection, joining reaps finished ones.
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                record_panic(ended, metrics);
                continue;
            }
            () = &mut begun => break,
        };
        match accepted {
            Ok((stream, address)) => {
                let (place, standing) = match places.acquire(address.ip().into()) {
                    Ok(place) => (Some(place), AcceptDecision::Served),
                    Err(shortage) => (None, AcceptDecision::Refused(shortage)),
                };
                let telling = match standing {
                    AcceptDecision::Served => None,
                    AcceptDecision::Refused(_) => match Arc::clone(&refusals).try_acquire_owned() {
                        Ok(telling) => Some(telling),
                        Err(_) => continue,
                    },
                };
                let connection = ClientConnection {
                    peer: address.ip(),
                    standing,
                    delivery: delivery.clone(),
                    identity: PeerIdentity::default(),
                    // What is in force now, for the whole of this connection.
                    tls: tls.as_ref().map(|tls| tls.load_full().into()),
                    service: service.clone(),
                    drain: drain.clone(),
                };
                connections.spawn(async move {
                    match standing {
                        AcceptDecision::Served => connection.run(stream, place).await,
                        // Whether it was told or not, it is over then.
                        AcceptDecision::Refused(_) => {
                            let told = Box::pin(connection.run(stream, None));
                            let _ = tokio::time::timeout(REFUSAL_TIME, told).await;
                        }
                    }
                    drop(telling);
                });
            }
            Err(error) => {
                if let Some(metrics) = metrics {
                    metrics.connections_failed.inc(ConnectionFailure::Accept);
                }
                accept_errors.note(&error, Instant::now());
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    finish(connections, &drain, metrics).await;
}

/// Counts a connection whose task panicked; the client finds it closed.
fn record_panic(ended: Result<(), JoinError>, metrics: Option<&ListenerMetrics>) {
    let Some(panic) = ended.err().filter(JoinError::is_panic) else {
        return;
    };
    error!(%panic, "the task of a connection panicked; the connection is closed");
    if let Some(metrics) = metrics {
        metrics.task_ends.inc(TaskKind::Connection);
    }
}

/// Waits until all connections have ended. Those that have not by the deadline are cut.
async fn finish(mut connections: JoinSet<()>, drain: &Drain, metrics: Option<&ListenerMetrics>) {
    let all = async {
        while let Some(ended) = connections.join_next().await {
            record_panic(ended, metrics);
        }
    };
    tokio::select! {
        () = all => {}
        () = drain.expired() => connections.shutdown().await,
    }
}

/// One worker a thread of the runtime: each can be busy with writing.
fn delivery(metrics: Option<&ListenerMetrics>) -> Delivery {
    let count = tokio::runtime::Handle::current().metrics().num_workers();
    Delivery::start(count, metrics.map(|metrics| &metrics.task_ends))
}

/// A connection, counted while it is open.
struct ConnectionGauge<'a>(&'a ListenerMetrics);

impl<'a> ConnectionGauge<'a> {
    fn count(metrics: &'a ListenerMetrics) -> Self {
        metrics.connections_accepted.inc();
        metrics.connections.inc();
        Self(metrics)
    }
}

impl Drop for ConnectionGauge<'_> {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

struct ClientConnection<R> {
    peer: IpAddr,
    standing: AcceptDecision,
    delivery: Delivery,
    /// Known once TLS is established; empty without TLS.
    identity: PeerIdentity,
    tls: Option<TlsAcceptor>,
    service: Service<R>,
    drain: Drain,
}

impl<R: Resources> ClientConnection<R> {
    /// The place goes with the socket.
    async fn run(mut self, stream: TcpStream, place: Option<Permit>) {
        let resources = Arc::clone(self.service.resources());
        let metrics = resources.listener_metrics();
        let _open = metrics.map(ConnectionGauge::count);
        if let Err(error) = set_options(&stream) {
            debug!(%error, "socket options");
        }
        // What is boxed, here and below, takes no room while a watch runs.
        let ended = match Box::pin(self.open(stream, place)).await {
            Ok(Some((transport, false))) => self.http1(transport).await,
            Ok(Some((transport, true))) => Box::pin(self.http2(transport)).await,
            Ok(None) => Ok(()),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = ended {
            debug!(?reason, "a connection failed");
            if let Some(metrics) = metrics {
                metrics.connections_failed.inc(reason);
            }
        }
    }

    /// Establishes TLS where it is spoken, and finds out whether the client speaks HTTP/2; `None` for one that has left.
    async fn open(
        &mut self,
        stream: TcpStream,
        place: Option<Permit>,
    ) -> Result<Option<(Transport, bool)>, ConnectionFailure> {
        let Some(acceptor) = &self.tls else {
            let mut transport = Transport::from(stream).holding(place);
            let speaks_http2 = speaks_http2(&mut transport);
            let speaks_http2 = tokio::time::timeout(HEAD_TIMEOUT, speaks_http2)
                .await
                .map_err(|_elapsed| ConnectionFailure::Timeout)?;
            return Ok(speaks_http2.map(|is_http2| (transport, is_http2)));
        };
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
        let Ok(Ok(stream)) = handshake.await else {
            return Err(ConnectionFailure::Handshake);
        };
        let session = stream.get_ref().1;
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        self.identity = peer_identity(session);
        Ok(Some((Transport::from(stream).holding(place), is_http2)))
    }

    async fn http1(self, mut transport: Transport) -> Result<(), ConnectionFailure> {
        let conduct = self.conduct();
        loop {
            let outcome = Box::pin(self.http1_until(transport, &conduct)).await?;
            let Some((back, head, watch)) = outcome else {
                return Ok(());
            };
            match self.delivery.deliver(back, head, *watch).await {
                Some(back) if !self.drain.is_begun() => transport = back,
                Some(back) => {
                    Box::pin(back.close()).await;
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
    }

    /// Speaks HTTP/1.1 until the connection ends, or a watch begins that is to be delivered.
    async fn http1_until(
        &self,
        transport: Transport,
        conduct: &AbortLimit,
    ) -> Result<Option<(Transport, Bytes, Box<Watch>)>, ConnectionFailure> {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            // `HeadTimer` tells a head that does not come from an idle connection.
            .header_read_timeout(None)
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_LEN);
        let (hijack, traffic) = (HijackSlot::default(), transport.traffic());
        let mut head_timer = HeadTimer::new(conduct.clone(), traffic.clone());
        let mut connection = builder
            .serve_connection(
                TokioIo::new(transport),
                self.answering(conduct, Some((hijack.clone(), traffic.clone()))),
            )
            .with_upgrades();
        let ended = {
            let shut_down = http1::UpgradeableConnection::graceful_shutdown;
            let left = |context: &mut Context<'_>| {
                if hijack.has_watch() && !traffic.is_flush_due() {
                    return Poll::Ready(Ok(HttpEnd::Left));
                }
                head_timer.poll(context).map(|overdue| match overdue {
                    HeadTimeout::Idle => Ok(HttpEnd::Closed),
                    HeadTimeout::Head => Err(ConnectionFailure::Timeout),
                    HeadTimeout::Answer => {
                        if let Some(metrics) = self.service.resources().listener_metrics() {
                            metrics.streams_stalled.inc();
                        }
                        Ok(HttpEnd::Closed)
                    }
                })
            };
            drive_connection(
                Pin::new(&mut connection),
                shut_down,
                left,
                &self.drain,
                conduct,
            )
            .await
        };
        match (ended, hijack.take()) {
            (Ok(HttpEnd::Left), Some(Hijacked::Watch { head, watch })) => {
                Ok(connection.into_parts().map(|parts| {
                    let mut transport = parts.io.into_inner();
                    transport.put_back(&parts.read_buf);
                    (transport, head, watch)
                }))
            }
            (_, Some(Hijacked::WebSocket(websocket))) => {
                drop(connection);
                Box::pin(websocket.run()).await;
                Ok(None)
            }
            (ended, _) => ended.map(|_| None),
        }
    }

    async fn http2(self, transport: Transport) -> Result<(), ConnectionFailure> {
        let begun = tokio::time::timeout(HEAD_TIMEOUT, PrefacedStream::read(transport)).await;
        let stream = match begun {
            Ok(Ok(stream)) => stream,
            Ok(Err(NoPreface::Gone)) => return Ok(()),
            Ok(Err(NoPreface::Wrong)) => return Err(ConnectionFailure::Protocol),
            Err(_) => return Err(ConnectionFailure::Timeout),
        };
        let metrics = self.service.resources().listener_metrics();
        let builder = http2_builder(StallExecutor::new(metrics));
        let conduct = self.conduct();
        let service = self.answering(&conduct, None);
        let gathered = WriteCoalescer::new(ControlFrameMeter::new(
            stream,
            PREFACE.len(),
            conduct.clone(),
        ));
        let io = TokioIo::new(gathered.clone());
        let connection = std::pin::pin!(builder.serve_connection(io, service));
        let turns = std::pin::pin!(CoalescedConnection::new(connection, gathered.clone()));
        let shut_down =
            |turns: Pin<&mut CoalescedConnection<'_, http2::Connection<_, _, _>, _>>| {
                turns.get_mut().connection().graceful_shutdown();
            };
        drive_connection(turns, shut_down, |_| Poll::Pending, &self.drain, &conduct).await?;
        linger(gathered).await;
        Ok(())
    }

    fn conduct(&self) -> AbortLimit {
        let metrics = self.service.resources().listener_metrics();
        AbortLimit::new(metrics.map(|metrics| metrics.request_aborts.clone()))
    }

    fn answering(
        &self,
        conduct: &AbortLimit,
        http1: Option<(HijackSlot, Traffic)>,
    ) -> HyperService<R> {
        let (hijack, traffic) = http1.unzip();
        let peer = match self.service.admission() {
            Some(admission) if admission.is_for_operators() => Peer::from(self.peer).operator(),
            Some(_) | None => self.peer.into(),
        };
        HyperService {
            service: self.service.clone(),
            abort_limit: conduct.clone(),
            hijack,
            traffic,
            peer,
            address: ConnectionAddress(self.peer),
            identity: PeerIdentity {
                peer,
                ..self.identity.clone()
            },
            standing: self.standing,
        }
    }
}

/// The certificates of a client, as they were sent in this handshake or, if its session is resumed, in the one before.
fn peer_identity(session: &rustls::ServerConnection) -> PeerIdentity {
    PeerIdentity {
        certificates: session.peer_certificates().unwrap_or_default().into(),
        ..PeerIdentity::default()
    }
}

/// HTTP/2 with the limits of this listener. What hyper bounds by itself is not set: resets of streams that nobody has
/// looked at yet (20), of streams with mistakes (1,024), tiny and empty DATA frames, CONTINUATION frames.
fn http2_builder(streams: StallExecutor) -> http2::Builder<StallExecutor> {
    let mut builder = http2::Builder::new(streams);
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

/// How HTTP on a connection ended, if well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpEnd {
    /// For good.
    Closed,
    /// `left` said so: the connection is whole, and goes on otherwise.
    Left,
}

type HttpResult = Result<HttpEnd, ConnectionFailure>;

/// Runs a connection to its end, or until it is `left`; once the drain begins, or the client has given up too much, it takes
/// no more requests.
async fn drive_connection<C>(
    mut connection: Pin<&mut C>,
    shut_down: fn(Pin<&mut C>),
    mut left: impl FnMut(&mut Context<'_>) -> Poll<HttpResult>,
    drain: &Drain,
    conduct: &AbortLimit,
) -> HttpResult
where
    C: Future<Output = hyper::Result<()>>,
{
    let was_sent_away = tokio::select! {
        ended = drive_until_hijacked(connection.as_mut(), &mut left) => return ended,
        () = drain.begun() => false,
        () = conduct.reaches(AbortAction::GoAway) => true,
    };
    shut_down(connection.as_mut());
    // Whoever does not answer the ping of a GOAWAY may still begin requests: so it is cut in the end.
    let ended = tokio::select! {
        ended = drive_until_hijacked(connection, &mut left) => ended,
        () = conduct.reaches(AbortAction::Cut) => Err(ConnectionFailure::Flood),
    };
    if was_sent_away {
        return Err(ConnectionFailure::Flood);
    }
    ended
}

/// Safe to cancel: the connection stays as it is.
async fn drive_until_hijacked<C>(
    mut connection: Pin<&mut C>,
    left: &mut impl FnMut(&mut Context<'_>) -> Poll<HttpResult>,
) -> HttpResult
where
    C: Future<Output = hyper::Result<()>>,
{
    poll_fn(|context| {
        stall::clear_signal();
        match connection.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(classify_end(ended).map(|()| HttpEnd::Closed)),
            Poll::Pending => left(context),
        }
    })
    .await
}

fn classify_end(ended: hyper::Result<()>) -> Result<(), ConnectionFailure> {
    let Err(error) = ended else {
        return Ok(());
    };
    debug!(%error, "connection ended");
    failure(&error).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;
