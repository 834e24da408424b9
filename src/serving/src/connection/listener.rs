//! Accepts connections and serves HTTP/1.1 or HTTP/2 on them, chosen by ALPN under TLS and by the first bytes without TLS.
//!
//! [`run`] accepts; each connection has a task, which runs `ClientConnection::run`, and `drive` runs HTTP on it.

mod drive;
mod head_timer;
mod idle_meter;
mod socket;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, warn};

use super::adoption::StreamAdopter;
use super::go_away::GoAway;
use super::hijack::{HijackSlot, Hijacked};
use super::preface::{NoPreface, PREFACE, check_preface, speaks_http2};
use super::service::{AcceptDecision, HEADERS_MAX, HyperService};
use crate::auth::caller::PeerIdentity;
use crate::config::OpenFiles;
use crate::fairness::{Activity, Peer, Permit, Permits, Standing};
use crate::log_limit::LogLimit;
use crate::metrics::{ConnectionFailure, ListenerMetrics, TaskKind};
use crate::net::{TcpListener, TcpStream};
use crate::serve::{ConnectionEntry, Service};
use crate::shutdown::Drain;
use crate::transport::abort_limit::AbortLimit;
use crate::transport::stall::{self, StallExecutor};
use crate::transport::{
    CoalescedConnection, ControlFrameMeter, Traffic, Transport, WriteCoalescer, linger,
};
use crate::watch::delivery::Delivery;
use crate::watch::{Watch, WatchRecall};
use drive::{ConnectionEnds, Farewell, GO_AWAY_MAX, HttpEnd, SILENCE_MAX};
use head_timer::{HEAD_TIMEOUT, HeadTimeout, HeadTimer};
use idle_meter::IdleMeter;
pub use socket::{bind, set_options};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that hyper may buffer. Small, so that a slow client's lag stays in its cursor and not in buffers.
const BUFFER_LEN: usize = 64 << 10;
/// Concurrent HTTP/2 streams on one connection: room for a thousand watches and some short requests. The API server allows 100; clients
/// at the limit open another connection. Each stream may hold one frame that its client has not read.
const STREAMS_MAX: u32 = 1_200;
/// Bytes of an HTTP/2 request's headers, CONTINUATION frames included. Long tokens and impersonation headers are legal.
const HEAD_LIST_LEN: u32 = 128 << 10;
/// Bytes of one request body that may be in flight; the API server's value.
const STREAM_WINDOW_LEN: u32 = 256 << 10;
/// Bytes of all request bodies of one connection that may be in flight. Eight stalled bodies use it up.
const CONNECTION_WINDOW_LEN: u32 = 2 << 20;
/// Counted from the last request, part of a body or answer to a ping: hyper takes no notice of other frames.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// More than the 45 s after which client-go gives a silent connection up. A client that was cut off for less than that finds its connection
/// open, as at an API server; if it had been closed meanwhile, client-go might get an error after which it lists again.
const PING_TIMEOUT: Duration = Duration::from_secs(50);
/// The time for refusing a connection with 429, TLS handshake included.
const REFUSAL_TIME: Duration = Duration::from_secs(5);
/// The pause after a failed accept. Without it, the accept loop would spin while the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// TLS settings of new connections. Replacing them does not affect open connections.
pub type ServerTls = Arc<ArcSwap<rustls::ServerConfig>>;

/// Serves until the drain starts, then waits for open requests until its deadline.
pub async fn run(listener: TcpListener, tls: Option<ServerTls>, service: Service, drain: Drain) {
    let metrics = service.metrics();
    let delivery = delivery(metrics);
    let permits = Permits::new(service.admission().connections_max());
    // While file descriptors are short, every attempt fails.
    let mut accept_errors = LogLimit::default();
    // Beyond this number of refusals in progress, connections are closed without a response.
    let refusals = Permits::new(OpenFiles::of_process(0).refusals);
    let mut connections = JoinSet::new();
    let mut drain_started = std::pin::pin!(drain.closing());
    loop {
        // Both branches are safe to cancel: accept loses no connection, joining reaps finished ones.
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                record_panic(ended, metrics);
                continue;
            }
            () = &mut drain_started => break,
        };
        match accepted {
            Ok((stream, address)) => {
                let (permit, decision) = match permits.acquire(address.ip().into()) {
                    Ok(permit) => (Some(permit), AcceptDecision::Served),
                    Err(shortage) => (None, AcceptDecision::Refused(shortage)),
                };
                let refuse = || refusals.acquire(address.ip().into());
                let Ok(refusal_permit) = permit.is_none().then(refuse).transpose() else {
                    continue;
                };
                let connection = ClientConnection {
                    peer: address.ip(),
                    decision,
                    delivery: delivery.clone(),
                    identity: PeerIdentity::default(),
                    // The TLS settings in force now apply for the whole connection.
                    tls: tls.as_ref().map(|tls| tls.load_full().into()),
                    service: service.clone(),
                    drain: drain.clone(),
                    go_away: GoAway::default(),
                    entry: match decision {
                        AcceptDecision::Served => service.track(),
                        AcceptDecision::Refused(_) => None,
                    },
                    standing: None,
                };
                connections.spawn(async move {
                    match decision {
                        AcceptDecision::Served => connection.run(stream, permit).await,
                        // The connection is closed after this time, whether the client has got its 429 or not.
                        AcceptDecision::Refused(_) => {
                            let refusal = Box::pin(connection.run(stream, None));
                            let _ = tokio::time::timeout(REFUSAL_TIME, refusal).await;
                        }
                    }
                    drop(refusal_permit);
                });
            }
            Err(error) => {
                metrics.connections_failed.inc(ConnectionFailure::Accept);
                if let Some(count) = accept_errors.due(Instant::now()) {
                    warn!(%error, count, "connections could not be accepted");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    finish(connections, &drain, metrics).await;
}

/// Counts a connection whose task panicked. Dropping the task closes the connection.
fn record_panic(ended: Result<(), JoinError>, metrics: &ListenerMetrics) {
    let Some(panic) = ended.err().filter(JoinError::is_panic) else {
        return;
    };
    error!(%panic, "the task of a connection panicked; the connection is closed");
    metrics.task_ends.inc(TaskKind::Connection);
}

/// Waits until all connections have ended. Connections that are still open at the deadline are closed.
async fn finish(mut connections: JoinSet<()>, drain: &Drain, metrics: &ListenerMetrics) {
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

/// Starts one delivery worker per runtime thread: writing can keep each of them busy.
fn delivery(metrics: &ListenerMetrics) -> Delivery {
    let count = tokio::runtime::Handle::current().metrics().num_workers();
    Delivery::start(count, Some(&metrics.task_ends))
}

/// Counts a connection as open until it is dropped.
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

struct ClientConnection {
    peer: IpAddr,
    decision: AcceptDecision,
    delivery: Delivery,
    /// The client's certificates, known once TLS is established; empty without TLS.
    identity: PeerIdentity,
    tls: Option<TlsAcceptor>,
    service: Service,
    drain: Drain,
    go_away: GoAway,
    /// Its entry among the connections that may be recalled.
    entry: Option<ConnectionEntry>,
    /// Whether it is idle, for newcomers that need its permit.
    standing: Option<Standing>,
}

impl ClientConnection {
    /// Serves the connection. The permit is released when the socket closes.
    async fn run(mut self, stream: TcpStream, permit: Option<Permit>) {
        let service = self.service.clone();
        let metrics = service.metrics();
        let _open = ConnectionGauge::count(metrics);
        if let Err(error) = set_options(&stream) {
            debug!(%error, "cannot set socket options");
        }
        // Boxed futures, here and below, are freed when they end: they take no memory while a watch runs.
        let ended = match Box::pin(self.open(stream, permit)).await {
            Ok(Some((transport, false))) => self.http1(transport).await,
            Ok(Some((transport, true))) => Box::pin(self.http2(transport)).await,
            Ok(None) => Ok(()),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = ended {
            debug!(?reason, "a connection failed");
            metrics.connections_failed.inc(reason);
        }
    }

    /// Establishes TLS if it is configured and determines whether the client speaks HTTP/2; `None` if the client has disconnected.
    async fn open(
        &mut self,
        stream: TcpStream,
        mut permit: Option<Permit>,
    ) -> Result<Option<(Transport, bool)>, ConnectionFailure> {
        let mut reclaim = permit.as_mut().map(Permit::reclaimable);
        self.standing = permit.as_ref().map(Permit::standing);
        if let Some(standing) = &self.standing {
            standing.set(Activity::Unused);
        }
        let Some(acceptor) = &self.tls else {
            let mut transport = Transport::from(stream).with_permit(permit, reclaim);
            let speaks_http2 = self.opened(HEAD_TIMEOUT, speaks_http2(&mut transport));
            let speaks_http2 = speaks_http2.await.ok_or(ConnectionFailure::Timeout)?;
            return Ok(speaks_http2.map(|is_http2| (transport, is_http2)));
        };
        let taken_back = async {
            match &mut reclaim {
                Some(reclaim) => reclaim.await,
                None => std::future::pending().await,
            }
        };
        let handshake = self.opened(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
        let handshake = tokio::select! {
            handshake = handshake => handshake,
            () = taken_back => return Err(ConnectionFailure::Reclaimed),
        };
        let Some(Ok(stream)) = handshake else {
            return Err(ConnectionFailure::Handshake);
        };
        let session = stream.get_ref().1;
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        self.identity = peer_identity(session);
        Ok(Some((
            Transport::from(stream).with_permit(permit, reclaim),
            is_http2,
        )))
    }

    async fn http1(self, mut transport: Transport) -> Result<(), ConnectionFailure> {
        let abort_limit = self.abort_limit();
        loop {
            let outcome = Box::pin(self.http1_until(transport, &abort_limit)).await?;
            let Some((io, head, watch)) = outcome else {
                return Ok(());
            };
            match self.delivery.deliver(io, head, watch).await {
                Some(io) if io.traffic().has_stalled() => {
                    self.note_stalled();
                    return Ok(());
                }
                Some(io) if !self.is_ending() => transport = io,
                Some(io) => {
                    Box::pin(io.close()).await;
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
    }

    /// Serves HTTP/1.1 until the connection ends or a watch takes it over.
    async fn http1_until(
        &self,
        transport: Transport,
        abort_limit: &AbortLimit,
    ) -> Result<Option<(Transport, Bytes, Box<Watch>)>, ConnectionFailure> {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            // `HeadTimer` replaces this timeout: it distinguishes a slow head from an idle connection.
            .header_read_timeout(None)
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_LEN);
        let (hijack, traffic) = (HijackSlot::default(), transport.traffic());
        traffic.begin_requests();
        let mut head_timer = HeadTimer::new(abort_limit.clone(), traffic.clone());
        let mut idle_meter = IdleMeter::new(self.standing.as_ref(), abort_limit, traffic.clone());
        let mut is_answer_late = false;
        let mut connection = builder
            .serve_connection(
                TokioIo::new(transport),
                self.hyper_service(abort_limit, Some((hijack.clone(), traffic.clone()))),
            )
            .with_upgrades();
        let ended = {
            let shut_down = http1::UpgradeableConnection::graceful_shutdown;
            let poll_end = |context: &mut Context<'_>| {
                if hijack.has_watch() && !traffic.is_flush_due() {
                    return Poll::Ready(Ok(HttpEnd::Hijacked));
                }
                if idle_meter.poll_reclaim(context).is_ready() {
                    return Poll::Ready(Err(ConnectionFailure::Reclaimed));
                }
                head_timer.poll(context).map(|overdue| match overdue {
                    HeadTimeout::Idle => Ok(HttpEnd::Closed),
                    HeadTimeout::Head => Err(ConnectionFailure::Timeout),
                    HeadTimeout::Answer => {
                        is_answer_late = true;
                        Ok(HttpEnd::Closed)
                    }
                })
            };
            let ends = self.ends(
                abort_limit,
                Farewell::new(abort_limit, traffic.clone(), SILENCE_MAX),
            );
            ends.drive(Pin::new(&mut connection), shut_down, poll_end)
                .await
        };
        // What goes on without HTTP is busy: a watch, a tunnel.
        drop(idle_meter);
        let is_answering = abort_limit.requests().1 > 0;
        if is_answer_late || is_answering && traffic.has_stalled() {
            self.note_stalled();
            stall::cut(connection);
            return ended.map(|_| None);
        }
        match (ended, hijack.take()) {
            (Ok(HttpEnd::Hijacked), Some(Hijacked::Watch { head, watch })) => {
                Ok(connection.into_parts().map(|parts| {
                    let mut transport = parts.io.into_inner();
                    transport.put_back(&parts.read_buf);
                    (transport, head, watch)
                }))
            }
            (_, Some(Hijacked::WebSocket(websocket))) => {
                drop(connection);
                Box::pin(websocket.run()).await;
                if traffic.has_stalled() {
                    self.note_stalled();
                }
                Ok(None)
            }
            (ended, _) => ended.map(|_| None),
        }
    }

    async fn http2(self, mut transport: Transport) -> Result<(), ConnectionFailure> {
        let preface = self.opened(HEAD_TIMEOUT, check_preface(&mut transport));
        match preface.await {
            Some(Ok(())) => {}
            Some(Err(NoPreface::Gone)) => return Ok(()),
            Some(Err(NoPreface::Wrong)) => return Err(ConnectionFailure::Protocol),
            None => return Err(ConnectionFailure::Timeout),
        }
        let traffic = transport.traffic();
        traffic.limit_silence(PING_TIMEOUT);
        let metrics = self.service.metrics();
        let builder = http2_builder(StallExecutor::new(
            self.peer,
            traffic.clone(),
            Some(metrics),
        ));
        let abort_limit = self.abort_limit();
        let mut idle_meter =
            IdleMeter::new(self.standing.as_ref(), &abort_limit, transport.traffic());
        let meter = ControlFrameMeter::new(transport, PREFACE.len(), abort_limit.clone());
        let coalescer = WriteCoalescer::new(meter, PREFACE.len());
        let service = HyperService {
            adopter: Some(StreamAdopter {
                writer: coalescer.clone(),
                traffic: traffic.clone(),
                delivery: self.delivery.clone(),
            }),
            ..self.hyper_service(&abort_limit, None)
        };
        let io = TokioIo::new(coalescer.clone());
        let connection = std::pin::pin!(builder.serve_connection(io, service));
        let coalesced = std::pin::pin!(CoalescedConnection::new(connection, coalescer.clone()));
        let shut_down =
            |coalesced: Pin<&mut CoalescedConnection<'_, http2::Connection<_, _, _>, _>>| {
                coalesced.get_mut().connection().graceful_shutdown();
            };
        let ends = self.ends(
            &abort_limit,
            Farewell::new(&abort_limit, traffic, GO_AWAY_MAX),
        );
        ends.drive(coalesced, shut_down, |context| {
            if idle_meter.poll_reclaim(context).is_ready() {
                return Poll::Ready(Err(ConnectionFailure::Reclaimed));
            }
            idle_meter
                .poll_http2(&self.go_away, context)
                .map(|()| Ok(HttpEnd::Closed))
        })
        .await?;
        linger(coalescer).await;
        Ok(())
    }

    /// Counts the connection: its client has stopped reading a response.
    fn note_stalled(&self) {
        self.service.metrics().streams_stalled.note(self.peer);
    }

    /// Whether the connection accepts no more requests.
    fn is_ending(&self) -> bool {
        let is_recalled = self.recall().is_some_and(WatchRecall::is_begun);
        is_recalled || self.drain.is_closing() || self.go_away.is_begun()
    }

    fn recall(&self) -> Option<&WatchRecall> {
        self.entry.as_ref().map(ConnectionEntry::recall)
    }

    fn abort_limit(&self) -> AbortLimit {
        let aborts = self.service.metrics().request_aborts.clone();
        AbortLimit::new(Some(aborts)).with_standing(self.standing.clone())
    }

    fn ends<'a>(&'a self, abort_limit: &'a AbortLimit, farewell: Farewell) -> ConnectionEnds<'a> {
        ConnectionEnds {
            drain: &self.drain,
            go_away: &self.go_away,
            recall: self.recall(),
            abort_limit,
            farewell,
        }
    }

    /// The output of `opening`; `None` if it takes longer than `limit`, or the drain starts and the connection is not new any more.
    async fn opened<T>(&self, limit: Duration, opening: impl Future<Output = T>) -> Option<T> {
        let is_new = tokio::time::sleep(SILENCE_MAX);
        let drained = async {
            self.drain.closing().await;
            is_new.await;
        };
        // Both branches are safe to cancel: the connection is closed then.
        tokio::select! {
            opened = tokio::time::timeout(limit, opening) => opened.ok(),
            () = drained => None,
        }
    }

    fn hyper_service(
        &self,
        abort_limit: &AbortLimit,
        http1: Option<(HijackSlot, Traffic)>,
    ) -> HyperService {
        let (hijack, traffic) = http1.unzip();
        let peer = match self.service.admission().is_for_operators() {
            true => Peer::from(self.peer).operator(),
            false => self.peer.into(),
        };
        HyperService {
            service: self.service.clone(),
            abort_limit: abort_limit.clone(),
            hijack,
            adopter: None,
            traffic,
            address: self.peer,
            identity: PeerIdentity {
                peer,
                ..self.identity.clone()
            },
            decision: self.decision,
            go_away: self.go_away.clone(),
            recall: self.recall().cloned(),
        }
    }
}

/// The client's certificates from this handshake or, for a resumed session, from the one that created the session.
fn peer_identity(session: &rustls::ServerConnection) -> PeerIdentity {
    PeerIdentity {
        certificates: session.peer_certificates().unwrap_or_default().into(),
        ..PeerIdentity::default()
    }
}

/// Configures HTTP/2 with this listener's limits. hyper's own defaults bound the rest: resets of streams that were not accepted yet
/// (20), resets after errors of the client (1,024), tiny and empty DATA frames, CONTINUATION frames.
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

#[cfg(test)]
mod tests;
