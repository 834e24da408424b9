//! The embedded API server of the demo and the tests: Kubernetes' own behaviour over an in-memory store with one global
//! revision. It persists nothing and collects no garbage. It admits everybody, unless [`AuthOptions`] say otherwise.
//!
//! ```text
//! request ─▶ server (auth, route, faults) ─▶ answer ─▶ store (lock) ─▶ storage (rules) ─▶ publisher ─▶ watch caches
//! churn  ────────────────────────────────────────▶
//! ```

mod answer;
pub mod auth;
mod body;
mod caches;
pub mod churn;
mod churn_task;
mod connections;
mod discovery;
pub mod faults;
mod form;
pub mod kinds;
mod nesting;
mod object_meta;
pub mod patch;
mod reads;
pub mod refusal;
mod render;
pub mod reviews;
pub mod route;
mod server;
mod settings;
pub mod storage;
pub mod store;
mod validation;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::info;

use auth::{Auth, AuthError, AuthOptions, Tokens};
use caches::Caches;
use churn::{Churn, InitialCount, UnknownResource};
use faults::{FaultCounts, FaultError, FaultOrder};
use kinds::{Catalogue, ServedKind};
use reads::{NoRecorder, Reads};
use reviews::ReviewCounts;
use server::Server;
pub use settings::OptionsError;
use storage::Storage;
use store::Store;

use crate::config::ApiserverSettings;
use crate::connection::listener;
use crate::shutdown::Drain;

/// What an API server is started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds beside the built-in ones.
    pub extra_kinds: Vec<ServedKind>,
    /// Objects to begin with.
    pub objects: Vec<InitialCount>,
    /// About how long each of them is, in bytes.
    pub object_len: usize,
    /// Changes a second to these objects; 0 for none.
    pub churn_per_second: u32,
    /// Seed of the objects and changes; random when missing.
    pub seed: Option<u64>,
    /// Plain HTTP when missing.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Who may do what; everybody may do everything when missing.
    pub auth: Option<AuthOptions>,
}

/// Why an API server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The listener has no address.
    #[error("the listener has no address")]
    Listener(#[source] io::Error),
    /// Objects were asked for of a kind that is not served.
    #[error("cannot make the first objects")]
    Objects(#[source] UnknownResource),
    /// Callers cannot be told apart.
    #[error("authentication")]
    Auth(#[from] AuthError),
}

/// Why `kube-fanout apiserver` did not start. Each is one line for the terminal.
#[derive(Debug, thiserror::Error)]
pub enum ApiserverError {
    /// The address cannot be opened.
    #[error("--listen {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Settings that cannot be carried out.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The server itself.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A running API server; dropping it ends its connections.
#[derive(Debug)]
pub struct Apiserver {
    address: SocketAddr,
    server: Arc<Server>,
    rate: watch::Sender<u32>,
    /// The listener. Dropping the set aborts it, and its end takes the connections along.
    serving: JoinSet<()>,
    /// Churn and progress.
    _tasks: JoinSet<()>,
}

/// Runs an API server until its drain is over.
///
/// # Errors
/// See [`ApiserverError`]: only at start.
pub async fn run(settings: ApiserverSettings, drain: Drain) -> Result<(), ApiserverError> {
    let address = settings.listen;
    let listener =
        listener::bind(address).map_err(|source| ApiserverError::Listen { address, source })?;
    let server = start_until(listener, Options::try_from(&settings)?, drain)?;
    info!(address = %server.address, "the embedded API server is serving");
    server.ended().await;
    Ok(())
}

/// Starts a server on a listener, with its first objects in place. Must be called inside a tokio runtime.
///
/// # Errors
/// See [`StartError`].
pub fn start(listener: TcpListener, options: Options) -> Result<Apiserver, StartError> {
    start_until(listener, options, Drain::new())
}

/// As [`start`]; serves until the drain is over.
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
    let random = RandomState::new().hash_one(address);
    let seed = options.seed.unwrap_or(random);
    let mut churn = Churn::new(&catalogue, &options.objects, options.object_len, seed)
        .map_err(StartError::Objects)?;
    let caches = Caches::new(&catalogue);
    let served = caches.served();
    let storage = Storage::new(Arc::clone(&catalogue));
    let store = Arc::new(Store::new(storage, Box::new(caches)));
    let auth = Auth::new(options.auth, &catalogue, &store)?;
    churn_task::seed(&store, &mut churn);
    let reads = Reads {
        catalogue,
        store: Arc::clone(&store),
        served,
        streams: Arc::new(NoRecorder),
    };
    let server = Arc::new(Server::new(reads, address, auth, random));
    let mut serving = JoinSet::new();
    let tls = options.tls.map(TlsAcceptor::from);
    serving.spawn(connections::run(listener, tls, Arc::clone(&server), drain));
    let (rate, given) = watch::channel(options.churn_per_second);
    let mut tasks = JoinSet::new();
    tasks.spawn(churn_task::progress(Arc::clone(&store)));
    tasks.spawn(churn_task::run(store, churn, given));
    Ok(Apiserver {
        address,
        server,
        rate,
        serving,
        _tasks: tasks,
    })
}

impl Apiserver {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The served kinds.
    #[must_use]
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.server.catalogue
    }

    /// The store, for writes that need no HTTP.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.server.store
    }

    /// Users by token, which may be changed at any time.
    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        self.server.auth.tokens()
    }

    /// Reviews that were served.
    #[must_use]
    pub fn reviews(&self) -> &ReviewCounts {
        &self.server.reviews
    }

    /// Waits until its drain is over.
    pub async fn ended(mut self) {
        while self.serving.join_next().await.is_some() {}
    }

    /// Changes how many changes a second are made; 0 stops them.
    pub fn set_churn(&self, per_second: u32) {
        self.rate.send_replace(per_second);
    }

    /// How many watches are open.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.server.reads().watch_count()
    }

    /// Orders a fault, as `POST /debug/faults` does.
    ///
    /// # Errors
    /// Orders beyond a bound.
    pub fn order(&self, order: FaultOrder) -> Result<(), FaultError> {
        self.server.order(order)
    }

    /// How often faults struck.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.server.faults().counts()
    }
}
