//! A process that attacks a server. It uses one thread, and the number of clients, the rate and the time are bounded, so that it does not
//! starve the server of CPU. It prints its counts to standard output, a line of JSON at a time, and ends with its parent.

pub mod certificates;
mod frames;
mod http1;
mod kind;
mod streams;
mod writes;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cli::seconds;
use crate::command::{Subcommand, block_on};
use crate::process::raise_open_files;
use crate::target::Target;
pub use kind::Attack;

/// A client waits for this time before it returns after it was closed or refused.
const BACK_AFTER: Duration = Duration::from_millis(500);
/// How often the counts are printed.
const PRINT_EVERY: Duration = Duration::from_millis(100);

/// Counts of an attack.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub struct AttackCounts {
    /// Clients whose first operation has completed or was refused.
    pub started: u64,
    /// Connections that are open.
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
#[derive(Debug, Default, Serialize)]
struct AttackCounters {
    started: AtomicU64,
    connections: AtomicU64,
    done: AtomicU64,
    refused: AtomicU64,
    closed: AtomicU64,
    written: AtomicU64,
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}

/// State that all clients of an attack share.
#[derive(Debug)]
struct AttackState {
    target: Target,
    flags: Attacker,
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

/// A hostile client, in a process of its own.
#[derive(Debug, Clone, Parser)]
#[command(name = "attack", hide = true)]
pub struct Attacker {
    /// Server under attack.
    #[arg(long)]
    pub target: String,
    /// CA certificates for https, PEM.
    #[arg(long)]
    pub ca: Option<PathBuf>,
    /// API server for the attack's own writes.
    #[arg(long)]
    pub reference: String,
    /// Kind of attack.
    #[arg(long, value_enum)]
    pub attack: Attack,
    /// Number of clients.
    #[arg(long)]
    pub clients: usize,
    /// Requests or frames a second of all of them.
    #[arg(long)]
    pub rate: f64,
    /// Local address of the clients.
    #[arg(long)]
    pub source: Ipv4Addr,
    /// The process ends after this time at the latest.
    #[arg(long, value_parser = seconds)]
    pub life: Duration,
}

impl Subcommand for Attacker {
    fn execute(&self) -> Result<bool> {
        block_on(run(self)).map(|()| true)
    }
}

/// Runs until standard input ends, or for as long as the flags allow.
async fn run(flags: &Attacker) -> Result<()> {
    raise_open_files(flags.clients)?;
    let scene = Arc::new(AttackState {
        target: Target::new(&flags.target, None, flags.ca.as_deref())?,
        pace: RateLimiter::at(flags.rate),
        flags: flags.clone(),
        counts: AttackCounters::default(),
    });
    // All clients end with the set.
    let mut clients = JoinSet::new();
    begin(&scene, &mut clients).await?;
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let end = tokio::time::sleep(flags.life);
    tokio::pin!(end);
    let mut tick = tokio::time::interval(PRINT_EVERY);
    loop {
        tokio::select! {
            // All futures can be cancelled without loss.
            line = input.next_line() => match line? {
                Some(_) => {}
                None => return print_counts(&scene),
            },
            () = &mut end => return print_counts(&scene),
            _ = tick.tick() => print_counts(&scene)?,
        }
    }
}

fn print_counts(scene: &AttackState) -> Result<()> {
    println!("{}", serde_json::to_string(&scene.counts)?);
    Ok(())
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
