//! Metrics, health and build facts on a port of their own, plain HTTP/1.1. Never serves the cluster's objects.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | the registry, text format |
//! | `/livez`, `/healthz` | 200 while this answers at all |
//! | `/readyz` | 200 once all checks pass and no drain has begun, else 503; `?verbose` lists them |
//! | `/version` | name and version as JSON |

mod answer;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fairness::Permits;
use crate::metrics::Metrics;
use crate::shutdown::Drain;

#[cfg(test)]
mod tests;

/// What readiness is made of; the composition root knows.
pub trait Readiness: Send + Sync {
    /// All checks, in the order in which they are shown.
    fn checks(&self) -> Vec<ReadinessCheck>;
}

/// One line of `/readyz?verbose`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadinessCheck {
    /// What is checked: `upstream`, or a resource as `pods.v1`.
    pub name: String,
    /// How it is.
    pub outcome: CheckOutcome,
}

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// Well enough to serve; with a few words where there is something to say.
    Passed(String),
    /// The replica is not ready, for this reason.
    Failed(String),
}

/// What the admin port shows.
#[derive(Clone)]
pub struct AdminState {
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
    /// For `/readyz`.
    pub readiness: Arc<dyn Readiness>,
    /// For `/readyz`, which fails once it has begun so that no new clients are sent here.
    pub drain: Drain,
}

/// The admin port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("--admin-listen {address}")]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// A scraper or two, probes, and a person: more at once is a mistake or worse. Each address has a share of them (decision 25), so
/// that nobody keeps the probes out; what has no place is closed.
const CONNECTIONS_MAX: usize = 32;
/// A probe that sends its head in pieces longer than this holds a place that others need.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(10);
/// A client that does not read its answer holds a place too; a scraper that is cut connects again.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(300);
/// Accepting fails when descriptors run out: leave others time to give some back.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// The same failure is told once in this time.
const ACCEPT_WARN_PERIOD: Duration = Duration::from_secs(10);

/// Opens the port.
///
/// # Errors
/// If the address is in use or not ours.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ListenError { address, source })
}

/// Serves until dropped: probes and scrapes are to be answered to the very end of a drain. Owns its connections, which
/// end with it; the port stays open.
pub async fn serve(listener: &TcpListener, shown: AdminState) -> Infallible {
    let places = Permits::new(CONNECTIONS_MAX);
    let mut connections = JoinSet::new();
    let mut warned_at: Option<Instant> = None;
    loop {
        while connections.try_join_next().is_some() {}
        // Safe to cancel: a connection not yet accepted stays in the kernel's queue.
        match listener.accept().await {
            Ok((stream, address)) => {
                if let Some(place) = places.try_acquire(address.ip().into()) {
                    let connection = connection(stream, shown.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
            }
            Err(error) => {
                if warned_at.is_none_or(|at| at.elapsed() >= ACCEPT_WARN_PERIOD) {
                    tracing::warn!(%error, "cannot accept on the admin port");
                    warned_at = Some(Instant::now());
                }
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

fn connection(stream: TcpStream, shown: AdminState) -> impl Future<Output = ()> + Send {
    let service = service_fn(move |request| {
        let shown = shown.clone();
        async move { Ok::<_, Infallible>(answer::answer(&request, shown).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .serve_connection(TokioIo::new(stream), service);
    async move {
        // Whatever went wrong is between this client and its socket.
        if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_AGE_MAX, connection).await {
            tracing::debug!(%error, "admin connection ended");
        }
    }
}
