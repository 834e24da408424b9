//! The admin port: metrics, health and version over plain HTTP/1.1. It never serves the cluster's objects.
//!
//! | path | response |
//! |---|---|
//! | `/metrics` | all metrics, in the Prometheus text format |
//! | `/livez`, `/healthz` | 200 as long as the process can respond |
//! | `/readyz` | 200 once all checks pass and no drain has begun, otherwise 503; `?verbose` lists the checks |
//! | `/version` | name and version as JSON |
//! | `/log-filter` | GET and PUT: the log filter, for whom `access` admits |
//! | `/serving` | GET, PUT and DELETE: the serving rules, for whom `access` admits |
//! | `/debug/profile` | a CPU profile, in builds with the feature `profile`, for whom `access` admits |
//! | `/status`, `/status.json`, `/status/events` | the status page, its document, and its live events, for whom `access` admits |
//!
//! A connection serves one request. Slow clients, however many there are, keep neither probes nor a scrape out (`places`).

mod access;
mod answer;
mod change;
mod filter;
mod places;
#[cfg(feature = "profile")]
mod profile;
mod readiness;
mod response;
mod serving;
mod status;
mod visit;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::net::{TcpListener, TcpStream};
use answer::AdminClient;
pub use answer::AdminState;
use places::{PlaceAllocator, PlaceGuard};
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

/// A client that has not sent its request's head after this time is gone.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(10);
/// Bounds connections whose clients do not read. Prometheus gives a scrape no more time than its interval, which is a minute by default.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(70);
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
    let places = PlaceAllocator::new();
    let mut connections = JoinSet::new();
    let mut warned_at: Option<Instant> = None;
    loop {
        while connections.try_join_next().is_some() {}
        // Cancel-safe: a connection that is not accepted stays in the kernel's queue.
        match listener.accept().await {
            Ok((stream, address)) => {
                let place = places.admit(address.ip().into());
                connections.spawn(connection(stream, address, place, state.clone()));
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

async fn connection(stream: TcpStream, address: SocketAddr, place: PlaceGuard, state: AdminState) {
    let PlaceGuard { closed, key } = place;
    let viewer = Arc::<StatusViewer>::default();
    let client = AdminClient {
        address: address.ip(),
        viewer: Arc::clone(&viewer),
        place: Arc::new(key),
    };
    let service = service_fn(|request| {
        let (state, client) = (state.clone(), client.clone());
        async move { Ok::<_, Infallible>(answer::answer(request, state, client).await) }
    });
    // One request per connection: its place is free as soon as the response is sent, and a page's end is the connection's.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(HEAD_WAIT_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        // Ends with an error when the place was given to another connection: nothing is ever sent.
        _ = closed => return,
        () = viewer.stalled() => {
            tracing::debug!("a viewer of the status reads no more");
            return;
        }
        ended = tokio::time::timeout(CONNECTION_AGE_MAX, connection) => ended,
    };
    // An error concerns only this client, so it is logged for debugging only.
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "admin connection ended");
    }
}
