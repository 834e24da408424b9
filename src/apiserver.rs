//! The embedded API server of the demo and the tests. It behaves like kube-apiserver, over an in-memory store with one global
//! revision. Nothing is persisted, and there is no garbage collector. Without [`auth::AuthOptions`] every request is allowed.
//!
//! ```text
//! request ─▶ server (auth, route, faults) ─▶ answer ─▶ store (lock) ─▶ storage (rules) ─▶ publisher ─▶ watch caches
//! churn  ────────────────────────────────────────▶
//! ```
//!
//! Clients are served by the gateway's own listener (`connection`); `server` takes each request through the steps above. Lists and
//! watches do not reach `answer`: they are answered from the watch caches with the gateway's own `serve` (see `reads`), and watches are
//! delivered as the gateway's are. Start reading at [`start`], then `server`, [`storage`] and [`faults`].

mod answer;
mod api_services;
pub mod auth;
mod body;
mod caches;
pub mod churn;
mod churn_task;
mod discovery;
pub mod faults;
mod form;
mod json_errors;
pub mod kinds;
mod nesting;
mod object_meta;
pub mod patch;
mod reads;
pub mod refusal;
mod render;
mod replica;
mod request_body;
mod response;
mod review_kinds;
pub mod reviews;
mod route;
mod server;
mod settings;
pub mod storage;
pub mod store;
mod validation;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinSet;

use auth::{Auth, AuthError, Tokens};
use caches::Caches;
use churn::{Churn, UnknownResource};
use faults::{FaultCounts, FaultError, FaultOrder};
use kinds::Catalogue;
use reads::Reads;
use reviews::ReviewCounts;
use server::Server;
pub use settings::Options;
use storage::Storage;
use store::Store;

use crate::connection::listener;
use crate::net::TcpListener;
use crate::shutdown::Drain;
use crate::view::ServedResource;

/// Why the embedded API server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The listener's local address is unknown.
    #[error("cannot read the listener's local address")]
    Listener(#[source] io::Error),
    /// Initial objects were requested of a kind that is not served.
    #[error("cannot create the initial objects")]
    Objects(#[source] UnknownResource),
    /// Authentication cannot be set up.
    #[error("cannot set up authentication")]
    Auth(#[from] AuthError),
}

/// The serving certificates of a listener.
type ListenerTls = Arc<ArcSwap<rustls::ServerConfig>>;

/// A running API server. Dropping it closes its connections.
#[derive(Debug)]
pub struct Apiserver {
    address: SocketAddr,
    server: Arc<Server>,
    rate: watch::Sender<u32>,
    /// The task that accepts connections. Dropping the set aborts it, which closes the connections, too.
    serving: JoinSet<()>,
    /// Whether the caches of a replica stand still.
    lagging: watch::Sender<bool>,
    /// The tasks for churn, progress, and the end of watches.
    tasks: JoinSet<()>,
}

/// Starts a server on a listener; its initial objects exist when this returns. Must be called inside a tokio runtime.
///
/// # Errors
/// See [`StartError`].
pub fn start(listener: TcpListener, options: Options) -> Result<Apiserver, StartError> {
    start_until(listener, options, Drain::new())
}

/// Like [`start`], but the server stops when the drain has ended.
///
/// # Errors
/// See [`StartError`].
pub fn start_until(
    listener: TcpListener,
    options: Options,
    drain: Drain,
) -> Result<Apiserver, StartError> {
    let address = listener.local_addr().map_err(StartError::Listener)?;
    let catalogue = Arc::new(Catalogue::new(&options.extra_kinds));
    let random = || RandomState::new().hash_one(address);
    let seed = options.seed.unwrap_or_else(random);
    let mut churn = Churn::new(&catalogue, &options.objects, options.object_len, seed)
        .map_err(StartError::Objects)?;
    let mut storage = Storage::new(Arc::clone(&catalogue));
    api_services::put_local(&mut storage);
    let caches = Caches::of(&storage);
    let served = caches.served();
    let store = Arc::new(Store::new(storage, Box::new(caches)));
    let auth = Auth::new(options.auth, &catalogue, &store)?;
    churn_task::seed(&store, &mut churn);
    let tls = options.tls.map(|tls| Arc::new(ArcSwap::new(tls)));
    let mut apiserver = Apiserver::serve(listener, (&store, served), (auth, tls), drain)?;
    let (rate, rate_receiver) = watch::channel(options.churn_per_second);
    apiserver.rate = rate;
    let tasks = &mut apiserver.tasks;
    tasks.spawn(churn_task::progress(Arc::clone(&store)));
    tasks.spawn(churn_task::run(store, churn, rate_receiver));
    Ok(apiserver)
}

/// Ends the open watches when the drain starts, so that their connections can end.
async fn end_watches(server: Arc<Server>, drain: Drain) {
    drain.begun().await;
    server.reads().close();
}

impl Apiserver {
    /// Serves what a store's caches hold.
    fn serve(
        listener: TcpListener,
        (store, served): (&Arc<Store>, Vec<ServedResource>),
        (auth, tls): (Auth, Option<ListenerTls>),
        drain: Drain,
    ) -> Result<Self, StartError> {
        let address = listener.local_addr().map_err(StartError::Listener)?;
        let reads = Reads {
            catalogue: store.catalogue(),
            store: Arc::clone(store),
            served,
        };
        let server = Arc::new(Server::new(reads, address, auth));
        let mut serving = JoinSet::new();
        serving.spawn(listener::run(
            listener,
            tls,
            Arc::clone(&server),
            drain.clone(),
        ));
        let mut tasks = JoinSet::new();
        tasks.spawn(end_watches(Arc::clone(&server), drain));
        Ok(Self {
            address,
            server,
            rate: watch::Sender::new(0),
            lagging: watch::Sender::new(false),
            serving,
            tasks,
        })
    }

    /// The address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The kinds that the server serves.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.server.catalogue
    }

    /// The store, for writes that bypass HTTP.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.server.store
    }

    /// The users by bearer token. They may be changed at any time.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        self.server.auth.tokens()
    }

    /// Counts of the reviews that the server has answered.
    #[must_use]
    pub fn reviews(&self) -> &ReviewCounts {
        &self.server.reviews
    }

    /// Serves the same objects and history on another listener, as a new process does that reads them from etcd.
    #[cfg(feature = "sim")]
    pub fn serve_again(&self, listener: TcpListener) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(listener::run(
            listener,
            None,
            Arc::clone(&self.server),
            Drain::new(),
        ));
        tasks.spawn(churn_task::progress(Arc::clone(&self.server.store)));
        tasks
    }

    /// Waits until the server's drain has ended.
    pub async fn ended(mut self) {
        while self.serving.join_next().await.is_some() {}
    }

    /// Sets how many changes per second the churn makes; 0 stops it.
    pub fn set_churn(&self, per_second: u32) {
        self.rate.send_replace(per_second);
    }

    /// The number of open watches.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.server.watch_count()
    }

    /// Orders a fault, like `POST /debug/faults`.
    ///
    /// # Errors
    /// [`FaultError`] if the order exceeds a bound.
    pub fn order(&self, order: FaultOrder) -> Result<(), FaultError> {
        self.server.order(order)
    }

    /// How often each kind of fault has been applied.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.server.faults().counts()
    }
}
