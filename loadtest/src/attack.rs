//! Attacks on a server. An attack uses one thread, and the number of clients and the rate are bounded, so that it does not starve the server
//! of CPU.

pub mod certificates;
mod frames;
mod http1;
mod kind;
mod streams;
mod writes;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::process::raise_open_files;
use crate::target::Target;
use http1::RecentVersions;
pub use kind::Attack;

/// A client waits for this time before it returns after it was closed or refused.
const BACK_AFTER: Duration = Duration::from_millis(500);

/// What an attack has done. Relaxed: each number stands alone.
#[derive(Debug, Default)]
pub struct AttackCounts {
    /// Clients whose first operation has completed or was refused.
    pub started: AtomicU64,
    pub connections: AtomicU64,
    /// Requests answered with success, frames sent, or chains of certificates found invalid.
    pub done: AtomicU64,
    /// Refused requests, and connections that could not be made.
    pub refused: AtomicU64,
    /// Connections that the server has closed.
    pub closed: AtomicU64,
    /// Objects written, for attacks that need events.
    pub written: AtomicU64,
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}

/// State that all clients of an attack share.
#[derive(Debug)]
struct AttackState {
    flags: AttackConfig,
    counts: AttackCounts,
    pace: RateLimiter,
    versions: RecentVersions,
}

/// A client, which attacks again and again.
#[derive(Debug)]
struct AttackClient {
    state: Arc<AttackState>,
    number: usize,
    has_started: AtomicBool,
}

impl AttackClient {
    fn new(state: &Arc<AttackState>, number: usize) -> Arc<Self> {
        Arc::new(Self {
            state: state.clone(),
            number,
            has_started: AtomicBool::new(false),
        })
    }

    /// Its address.
    fn source(&self) -> Ipv4Addr {
        let further = self.number % self.state.flags.attack.addresses();
        let first = u32::from(self.state.flags.source);
        Ipv4Addr::from(first + u32::try_from(further).unwrap_or(0))
    }

    /// Counts it, once it has connected or was refused for the first time.
    fn start(&self) {
        if !self.has_started.swap(true, Ordering::Relaxed) {
            count(&self.state.counts.started);
        }
    }
}

/// Starts the clients. Each makes a connection by `attack`, whose errors are refusals, then the next one.
fn start_clients<F: Future<Output = Result<()>> + Send + 'static>(
    state: &Arc<AttackState>,
    clients: &mut JoinSet<()>,
    attack: impl Fn(Arc<AttackClient>) -> F + Clone + Send + 'static,
) {
    for number in 0..state.flags.clients {
        let (client, attack) = (AttackClient::new(state, number), attack.clone());
        clients.spawn(async move {
            loop {
                client.state.pace.turn().await;
                if attack(client.clone()).await.is_err() {
                    count(&client.state.counts.refused);
                }
                client.start();
                tokio::time::sleep(BACK_AFTER).await;
            }
        });
    }
}

/// A connection that is counted while it is open.
struct OpenConnection<'a>(&'a AttackState);

impl<'a> OpenConnection<'a> {
    fn of(state: &'a AttackState) -> Self {
        count(&state.counts.connections);
        Self(state)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.counts.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Permits at an even rate, shared by all clients.
#[derive(Debug)]
struct RateLimiter {
    interval: Duration,
    next: Mutex<Instant>,
}

impl RateLimiter {
    fn at(rate: f64) -> Self {
        Self {
            interval: Duration::from_secs_f64(1.0 / rate.max(0.01)),
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits for the next permit; unused permits are lost.
    async fn turn(&self) {
        let due = {
            let mut next = self.next.lock().await;
            let due = (*next).max(Instant::now());
            *next = due + self.interval;
            due
        };
        tokio::time::sleep_until(due).await;
    }
}

/// The kind of an attack and its size.
#[derive(Debug, Clone)]
pub struct AttackConfig {
    pub target: Target,
    /// API server for the attack's own writes.
    pub reference: String,
    pub attack: Attack,
    pub clients: usize,
    /// Requests or frames a second of all of them.
    pub rate: f64,
    /// Local address of the clients.
    pub source: Ipv4Addr,
}

/// An attack in a thread of its own, which ends when this is dropped.
#[derive(Debug)]
pub struct AttackThread {
    state: Arc<AttackState>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

impl AttackThread {
    pub fn start(config: AttackConfig) -> Result<Self> {
        raise_open_files(config.clients)?;
        let state = Arc::new(AttackState {
            pace: RateLimiter::at(config.rate),
            flags: config,
            counts: AttackCounts::default(),
            versions: RecentVersions::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let of_thread = state.clone();
        let thread = std::thread::Builder::new()
            .name("attack".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(async {
                    // All clients end with the set.
                    let mut clients = JoinSet::new();
                    begin(&of_thread, &mut clients).await?;
                    // An error means that the owner is gone.
                    let _ = stopped.await;
                    Ok(())
                })
            })?;
        Ok(Self {
            state,
            stop,
            thread,
        })
    }

    /// Whether all its clients have connected or were refused.
    pub fn has_started(&self) -> bool {
        let started = self.state.counts.started.load(Ordering::Relaxed);
        started >= self.state.flags.clients as u64
    }

    pub fn counts(&self) -> &AttackCounts {
        &self.state.counts
    }

    /// Ends it, after its counts were read.
    pub async fn finish(self) -> Result<()> {
        let _ = self.stop.send(());
        let ended = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        ended.map_err(|_| anyhow!("the attack panicked"))?
    }
}

async fn begin(state: &Arc<AttackState>, clients: &mut JoinSet<()>) -> Result<()> {
    writes::begin(state, clients).await?;
    match state.flags.attack {
        Attack::Selectors | Attack::Labels | Attack::Forwarded => streams::begin(state, clients),
        Attack::Pings
        | Attack::Settings
        | Attack::WindowUpdates
        | Attack::Priorities
        | Attack::ManyFields
        | Attack::IdleConnections => start_clients(state, clients, frames::flood),
        Attack::CertificateChains => certificates::begin(state, clients)?,
        Attack::Exact => {
            clients.spawn(writes::follow_versions(state.clone()));
            start_clients(state, clients, http1::repeat);
        }
        Attack::NameSelectors => start_clients(state, clients, http1::repeat),
        Attack::HalfBodies
        | Attack::SlowLists
        | Attack::Connections
        | Attack::Descriptors
        | Attack::Stalled => start_clients(state, clients, http1::request),
    }
    Ok(())
}
