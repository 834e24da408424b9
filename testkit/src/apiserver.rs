//! An API server in memory that behaves like kube-apiserver where clients of lists and watches notice it. What it does not do is in
//! `testkit/README.md`.
//!
//! ```text
//! connection ─▶ server (auth, routing, faults) ─▶ list, watch ─▶ view ─▶ store (one lock, one revision)
//!                                              └▶ writes ─▶ write (rules) ─▶ history (objects, log) ─▶ wakes watches
//! ```
//!
//! Start reading at [`start`], then `server`, [`store`] and `watch`. Nothing here has a thread or a clock of its own: it runs where tokio
//! runs, on any [`Listener`].

mod accept;
mod api_services;
pub mod auth;
pub mod churn;
mod connection;
mod discovery;
pub mod faults;
mod history;
mod json;
pub mod kinds;
mod list;
mod names;
pub mod object;
pub mod patch;
mod query;
pub mod request;
pub mod reviews;
mod selector;
mod server;
pub mod status;
pub mod store;
mod view;
mod watch;
mod write;

use std::future::{Future, pending};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch::{Sender, channel};
use tokio::task::JoinSet;

use auth::{Auth, AuthError, AuthOptions, Tokens, Webhook};
use churn::{Churn, InitialCount, UnknownResource};
pub use connection::Listener;
use faults::{FaultCounts, FaultError, FaultOrder};
use kinds::{Catalogue, ServedKind};
use reviews::ReviewCounts;
use server::Server;
use store::Store;
use view::View;

/// The options of a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds beside the built-in ones.
    pub extra_kinds: Vec<ServedKind>,
    /// The objects that exist at first, which churn changes.
    pub objects: Vec<InitialCount>,
    /// The approximate length of each of these objects, in bytes.
    pub object_len: usize,
    /// Changes per second to these objects.
    pub churn_per_second: u32,
    /// The seed of objects and changes; random if absent.
    pub seed: Option<u64>,
    /// TLS; plain HTTP if absent.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Authentication and authorization; every request is allowed if absent.
    pub auth: Option<AuthOptions>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The listener has no address.
    #[error("cannot read the listener's local address")]
    Listener(#[source] io::Error),
    /// Initial objects of a resource that is not served.
    #[error("cannot create the initial objects")]
    Objects(#[source] UnknownResource),
    /// Authentication cannot be set up.
    #[error("cannot set up authentication")]
    Auth(#[from] AuthError),
}

/// A running server. Dropping it closes its connections.
#[derive(Debug)]
pub struct Apiserver {
    address: SocketAddr,
    server: Arc<Server>,
    /// Changes per second.
    rate: Sender<u32>,
    /// The task that accepts connections, and owns them.
    serving: JoinSet<()>,
    /// The tasks of churn, and of the server's end.
    tasks: JoinSet<()>,
    /// Makes the connections end.
    stop: Sender<bool>,
}

/// Starts a server. Its initial objects exist when this returns. Must be called inside a tokio runtime.
///
/// # Errors
/// See [`StartError`].
pub fn start(listener: impl Listener, options: Options) -> Result<Apiserver, StartError> {
    start_until(listener, options, pending())
}

/// Starts a server that ends when `stop` is ready: watches end between events, and connections after the requests that are open.
///
/// # Errors
/// See [`StartError`].
pub fn start_until(
    listener: impl Listener,
    options: Options,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Apiserver, StartError> {
    let address = listener.local_addr().map_err(StartError::Listener)?;
    let seed = options
        .seed
        .unwrap_or_else(|| RandomState::new().hash_one(address));
    let catalogue = Arc::new(Catalogue::new(&options.extra_kinds));
    let mut churn = Churn::new(&catalogue, &options.objects, options.object_len, seed)
        .map_err(StartError::Objects)?;
    let store = Arc::new(Store::new(catalogue));
    api_services::put_local(&store);
    let auth = Auth::new(options.auth, &store)?;
    churn.seed(&store);
    let view = View::new(Arc::clone(&store), 0);
    let mut apiserver = Apiserver::serve(listener, view, auth, options.tls)?;
    apiserver.rate.send_replace(options.churn_per_second);
    let rate = apiserver.rate.subscribe();
    apiserver.tasks.spawn(churn.run(store, rate));
    let (server, connections) = (Arc::clone(&apiserver.server), apiserver.stop.clone());
    apiserver.tasks.spawn(async move {
        stop.await;
        connections.send_replace(true);
        server.end_watches();
    });
    Ok(apiserver)
}

impl Apiserver {
    fn serve(
        listener: impl Listener,
        view: View,
        auth: Auth,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Result<Self, StartError> {
        let address = listener.local_addr().map_err(StartError::Listener)?;
        let seed = RandomState::new().hash_one(address);
        let server = Arc::new(Server::new(Arc::new(view), address, auth, seed));
        let (stop, is_stopped) = channel(false);
        let mut serving = JoinSet::new();
        let served = connection::serve(listener, tls, Arc::clone(&server), is_stopped);
        serving.spawn(served);
        Ok(Self {
            address,
            server,
            rate: Sender::new(0),
            serving,
            tasks: JoinSet::new(),
            stop,
        })
    }

    /// Starts another server over the same store, without authentication. Like an API server that has just started, it has no history.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn replica(&self, listener: impl Listener) -> Result<Self, StartError> {
        let store = Arc::clone(self.store());
        let auth = Auth::new(None, &store)?;
        let floor = store.revision();
        Self::serve(listener, View::new(store, floor), auth, None)
    }

    /// Serves the same objects and history on another listener, as a process does that has started again. Dropping the set ends it.
    pub fn serve_again(&self, listener: impl Listener) -> JoinSet<()> {
        let mut serving = JoinSet::new();
        let (server, stop) = (Arc::clone(&self.server), self.stop.subscribe());
        serving.spawn(connection::serve(listener, None, server, stop));
        serving
    }

    /// Lets the server stand still at its version, as one that lags behind etcd; or catch up.
    pub fn set_lagging(&self, is_lagging: bool) {
        self.server.view.freeze(is_lagging);
    }

    /// The address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The served kinds.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        self.store().catalogue()
    }

    /// The store, for writes without HTTP.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.server.view.store
    }

    /// The users by bearer token.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        self.server.auth.tokens()
    }

    /// The webhook authorizer, which is not configured at first.
    #[must_use]
    pub fn webhook(&self) -> &Webhook {
        self.server.auth.webhook()
    }

    /// The reviews that were answered.
    #[must_use]
    pub fn reviews(&self) -> &ReviewCounts {
        &self.server.reviews
    }

    /// Sets how many changes the churn makes per second.
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

    /// How often each fault has struck.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.server.fault_counts()
    }

    /// Waits until the server has stopped.
    pub async fn ended(mut self) {
        while self.serving.join_next().await.is_some() {}
    }
}
