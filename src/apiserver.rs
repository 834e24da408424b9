//! The embedded API server of the demo and the tests: Kubernetes' own behaviour over an in-memory store with one global
//! revision. It persists nothing, admits everybody and collects no garbage.
//!
//! ```text
//! request ─▶ server (route, faults) ─▶ answer ─▶ store (lock) ─▶ storage (rules) ─▶ publisher ─▶ watch caches
//! churn  ────────────────────────────────────────▶
//! ```

mod answer;
mod body;
pub mod churn;
mod discovery;
pub mod faults;
pub mod kinds;
pub mod patch;
mod pulse;
pub mod refusal;
mod render;
pub mod route;
mod server;
pub mod storage;
pub mod store;
mod validation;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use churn::{Churn, ObjectCount, UnknownResource};
use faults::{FaultCounts, FaultError, Order};
use kinds::{Catalogue, ServedKind};
use server::Server;
use storage::{Change, Storage};
use store::{Publisher, Store};

use crate::resource::ResourceVersion;

/// What an API server is started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds beside the built-in ones.
    pub extra_kinds: Vec<ServedKind>,
    /// Objects to begin with.
    pub objects: Vec<ObjectCount>,
    /// About how long each of them is, in bytes.
    pub object_len: usize,
    /// Changes a second to these objects; 0 for none.
    pub churn_per_second: u32,
    /// Seed of the objects and changes; random when missing.
    pub seed: Option<u64>,
    /// Plain HTTP when missing.
    pub tls: Option<Arc<rustls::ServerConfig>>,
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
}

/// A running API server; dropping it ends its connections.
#[derive(Debug)]
pub struct Apiserver {
    address: SocketAddr,
    server: Arc<Server>,
    /// Listener and churn. Dropping the set aborts them, and the listener's end takes the connections along.
    _tasks: JoinSet<()>,
}

/// Starts a server on a listener, with its first objects in place. Must be called inside a tokio runtime.
///
/// # Errors
/// See [`StartError`].
pub fn start(listener: TcpListener, options: Options) -> Result<Apiserver, StartError> {
    let address = listener.local_addr().map_err(StartError::Listener)?;
    let catalogue = Arc::new(Catalogue::new(&options.extra_kinds));
    let random = RandomState::new().hash_one(address);
    let seed = options.seed.unwrap_or(random);
    let mut churn = Churn::new(&catalogue, &options.objects, options.object_len, seed)
        .map_err(StartError::Objects)?;
    let storage = Storage::new(Arc::clone(&catalogue));
    let store = Arc::new(Store::new(storage, Box::new(Unread)));
    pulse::seed(&store, &mut churn);
    let server = Arc::new(Server::new(catalogue, Arc::clone(&store), address, random));
    let mut tasks = JoinSet::new();
    tasks.spawn(server::run(
        listener,
        options.tls.map(TlsAcceptor::from),
        Arc::clone(&server),
    ));
    if options.churn_per_second > 0 {
        tasks.spawn(pulse::run(store, churn, options.churn_per_second));
    }
    Ok(Apiserver {
        address,
        server,
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

    /// Orders a fault, as `POST /debug/faults` does.
    ///
    /// # Errors
    /// Orders beyond a bound.
    pub fn order(&self, order: Order) -> Result<(), FaultError> {
        self.server.order(order)
    }

    /// How often faults struck.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.server.faults().counts()
    }
}

/// Nobody reads changes yet.
#[derive(Debug)]
struct Unread;

impl Publisher for Unread {
    fn publish(&mut self, _: &[Change]) {}

    fn progress(&mut self, _: usize, _: ResourceVersion) {}

    fn compact(&mut self, _: usize, _: ResourceVersion) {}
}
