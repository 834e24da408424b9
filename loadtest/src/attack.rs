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
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::process::raise_open_files;
use crate::target::Target;
pub use kind::Attack;

/// A client waits for this time before it returns after it was closed or refused.
const BACK_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy)]
pub struct AttackCounts {
    /// Clients whose first operation has completed or was refused.
    pub started: u64,
    pub connections: u64,
    /// Requests answered with success, frames sent, or chains of certificates found invalid.
    pub done: u64,
    /// Refused requests, and connections that could not be made.
    pub refused: u64,
    /// Connections that the server has closed.
    pub closed: u64,
    /// Objects written, for attacks that need events.
    pub written: u64,
}

/// [`AttackCounts`] while they grow. Relaxed: each number stands alone.
#[derive(Debug, Default)]
struct AttackCounters {
    started: AtomicU64,
    connections: AtomicU64,
    done: AtomicU64,
    refused: AtomicU64,
    closed: AtomicU64,
    written: AtomicU64,
}

impl AttackCounters {
    fn now(&self) -> AttackCounts {
        let value = |of: &AtomicU64| of.load(Ordering::Relaxed);
        AttackCounts {
            started: value(&self.started),
            connections: value(&self.connections),
            done: value(&self.done),
            refused: value(&self.refused),
            closed: value(&self.closed),
            written: value(&self.written),
        }
    }
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}

/// State that all clients of an attack share.
#[derive(Debug)]
struct AttackState {
    flags: AttackConfig,
    counts: AttackCounters,
    pace: RateLimiter,
}

impl AttackState {
    /// The address of a client.
    fn source(&self, number: usize) -> Ipv4Addr {
        let further = number % self.flags.attack.addresses();
        let first = u32::from(self.flags.source);
        Ipv4Addr::from(first + u32::try_from(further).unwrap_or(0))
    }
}

/// A connection that is counted while it is open.
struct OpenConnection<'a>(&'a AttackState);

impl<'a> OpenConnection<'a> {
    fn of(scene: &'a AttackState) -> Self {
        count(&scene.counts.connections);
        Self(scene)
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
            counts: AttackCounters::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let scene = state.clone();
        let thread = std::thread::Builder::new()
            .name("attack".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(async {
                    // All clients end with the set.
                    let mut clients = JoinSet::new();
                    begin(&scene, &mut clients).await?;
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
        self.state.counts.now().started >= self.state.flags.clients as u64
    }

    /// Ends it; returns its counts.
    pub async fn finish(self) -> Result<AttackCounts> {
        let counts = self.state.counts.now();
        let _ = self.stop.send(());
        let ended = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        ended.map_err(|_| anyhow!("the attack panicked"))??;
        Ok(counts)
    }
}

async fn begin(scene: &Arc<AttackState>, clients: &mut JoinSet<()>) -> Result<()> {
    let attack = scene.flags.attack;
    writes::begin(scene, clients).await?;
    match attack {
        Attack::Selectors | Attack::Labels | Attack::Forwarded => streams::begin(scene, clients),
        Attack::Pings
        | Attack::Settings
        | Attack::WindowUpdates
        | Attack::Priorities
        | Attack::ManyFields
        | Attack::IdleConnections => frames::begin(scene, clients),
        Attack::CertificateChains => certificates::begin(scene, clients)?,
        Attack::Exact
        | Attack::NameSelectors
        | Attack::HalfBodies
        | Attack::SlowLists
        | Attack::Connections
        | Attack::Descriptors
        | Attack::Stalled => http1::begin(scene, clients),
    }
    Ok(())
}
