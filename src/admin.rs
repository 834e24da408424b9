//! The admin port: metrics, health and version over plain HTTP/1.1. It never serves the cluster's objects.
//!
//! | path | response |
//! |---|---|
//! | `/metrics` | all metrics, in the Prometheus text format |
//! | `/livez`, `/healthz` | 200 as long as the process can respond |
//! | `/readyz` | 200 once all checks pass and no drain has begun, otherwise 503; `?verbose` lists the checks |
//! | `/version` | name and version as JSON |
//! | `/status`, `/status.json`, `/status/events` | the status page, its document, and its live events, for whom `access` admits |

mod access;
mod answer;
mod readiness;
mod status;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fairness::Permits;
use crate::net::{TcpListener, TcpStream};
use answer::AdminClient;
pub use answer::AdminState;
pub use readiness::{CheckOutcome, Readiness, ReadinessCheck};
pub use status::StatusFeed;
use status::StatusViewer;

#[cfg(test)]
mod tests;

/// The admin port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("--admin-listen {address}")]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// Enough for scrapers, probes and people. Each address has a share of the connections (decision 25), so that no address can lock the
/// probes out; a connection without a permit is closed.
const CONNECTIONS_MAX: usize = 32;
/// A client that has not sent its request's head after this time would keep a permit that others need.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(10);
/// Bounds connections whose clients do not read; a scraper whose connection is closed connects again.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(300);
/// Pause after a failed accept: it fails when file descriptors run out, and other connections need time to close.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// A failure that lasts is logged once per period.
const ACCEPT_WARN_PERIOD: Duration = Duration::from_secs(10);

/// Opens the port.
///
/// # Errors
/// If the address is in use or does not belong to this machine.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ListenError { address, source })
}

/// Serves until it is dropped, because probes and scrapes must be answered until the end of a drain. Dropping it closes its
/// connections; the port stays open.
pub async fn serve(listener: &TcpListener, state: AdminState) -> Infallible {
    let permits = Permits::new(CONNECTIONS_MAX);
    let mut connections = JoinSet::new();
    let mut warned_at: Option<Instant> = None;
    loop {
        while connections.try_join_next().is_some() {}
        // Cancel-safe: a connection that is not accepted stays in the kernel's queue.
        match listener.accept().await {
            Ok((stream, address)) => {
                if let Some(permit) = permits.try_acquire(address.ip().into()) {
                    let connection = connection(stream, address, state.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
            }
            Err(error) => {
                if warned_at.is_none_or(|at| at.elapsed() >= ACCEPT_WARN_PERIOD) {
                    tracing::warn!(%error, "cannot accept a connection on the admin port");
                    warned_at = Some(Instant::now());
                }
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

fn connection(
    stream: TcpStream,
    address: SocketAddr,
    state: AdminState,
) -> impl Future<Output = ()> + Send {
    let viewer = Arc::<StatusViewer>::default();
    let client = AdminClient {
        address: address.ip(),
        viewer: Arc::clone(&viewer),
    };
    let service = service_fn(move |request| {
        let (state, client) = (state.clone(), client.clone());
        async move { Ok::<_, Infallible>(answer::answer(&request, state, client).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .serve_connection(TokioIo::new(stream), service);
    async move {
        // An error concerns only this client, so it is logged for debugging only.
        tokio::select! {
            ended = tokio::time::timeout(CONNECTION_AGE_MAX, connection) => {
                if let Ok(Err(error)) = ended {
                    tracing::debug!(%error, "admin connection ended");
                }
            }
            () = viewer.stalled() => tracing::debug!("a viewer of the status reads no more"),
        }
    }
}
