//! `drain`: a gateway with clients of every kind is asked to end while objects change. Every stream must end in order, between two events,
//! and with all events so far; lists in progress must complete; new clients must be turned away; and the gateway must end in time.

mod client;
mod clients;
mod collection;
pub mod gateway;
mod probes;
mod verdict;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;

use super::{Scenario, targets};
use crate::cli::{ChurnFlags, ServerFlags, seconds};
use crate::client::Client;
use crate::process::raise_open_files;
use crate::recorder::now_ns;
use crate::results::Results;
use clients::{ClientSet, DrainClients};
use collection::Collections;
use gateway::{GatewayControl, GatewayPid};
use probes::ConnectionProbes;
use verdict::DrainTimes;

/// How often progress is checked.
const LOOK: Duration = Duration::from_millis(5);
/// Number of new connections that are tried while the gateway waits for its last clients.
const LATE_KNOCKS: usize = 5;
/// Time after the drain timeout for the log's last lines and the system's cleanup on a busy machine.
const SPARE: Duration = Duration::from_secs(5);
/// Time for the reference to receive the last write.
const SETTLE_WAIT: Duration = Duration::from_secs(10);

/// A gateway with clients of every kind is asked to end: every stream ends in order and complete, new clients are turned away, and the
/// process ends in time.
#[derive(Debug, Clone, Parser)]
#[command(name = "drain")]
#[command(mut_arg("write_rate", |arg| arg.default_value("30")))]
#[command(mut_arg("object_size", |arg| arg.default_value("4096")))]
#[command(mut_arg("duration", |arg| arg.default_value("3s")))]
#[command(mut_arg("warm_up", |arg| arg.default_value("0s")))]
pub struct Drain {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub churning: ChurnFlags,
    /// Number of watchers, of all kinds together.
    #[arg(long, default_value_t = 3_000)]
    pub watchers: usize,
    /// Clients with a list in progress; half of the lists are forwarded.
    #[arg(long, default_value_t = 16)]
    pub listers: usize,
    /// Objects in these lists besides those that are written; missing ones are created.
    #[arg(long, default_value_t = 600)]
    pub ballast_objects: usize,
    /// The gateway's drain timeout.
    #[arg(long, default_value = "25s", value_parser = seconds)]
    pub drain_timeout: Duration,
}

impl Scenario for Drain {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let pid = self.server.server_pid;
        let pid = pid.context("drain needs --server-pid: the process that is to end")?;
        play(self, &GatewayPid(pid), results).await
    }
}

/// Plays the scenario with a gateway that `gateway` can end.
pub async fn play(
    flags: &Drain,
    gateway: &impl GatewayControl,
    results: &mut Results,
) -> Result<()> {
    raise_open_files(flags.watchers + flags.listers)?;
    let (target, reference) = targets(&flags.server)?;
    // A list through the gateway fills its cache, so that the reference's version is within its history.
    let first = format!("{}?resourceVersion=0&limit=1", flags.server.path);
    Client::new(target.clone()).json(&first).await?;
    let mut collections = Collections::begin(flags, &reference).await?;
    let started = Instant::now();
    let clients = DrainClients::begin(flags, &target, &collections).await?;
    results.column("drain");
    results.figure("all there after, s", started.elapsed().as_secs_f64());
    let [cached, forwarded] = collections.write();
    tokio::time::sleep(flags.churning.warm_up + flags.churning.duration).await;

    let probes = ConnectionProbes::new(target, format!("{}?limit=1", flags.server.path));
    let times = end(flags, gateway, &clients, &probes).await?;
    let writes = tokio::join!(cached.finish(), forwarded.finish()).into();
    times.report(results, flags.drain_timeout);
    probes.finish().report(results);
    let clients = clients.finish()?;
    let seen = clients.furthest();
    collections.settle(&writes, seen, results).await;
    collections.judge(&writes, results);
    clients.report(times.asked_ns, &collections, results);
    collections.clean().await;
    Ok(())
}

/// Asks the gateway to end, and waits until it has ended or its time is over. Slow clients read on when the others are gone and some new
/// connections have been tried.
async fn end(
    flags: &Drain,
    gateway: &impl GatewayControl,
    clients: &DrainClients,
    probes: &ConnectionProbes,
) -> Result<DrainTimes> {
    let held = clients.bytes(ClientSet::Slow);
    let (asked_at, asked_ns) = (Instant::now(), now_ns());
    gateway.terminate()?;
    probes.begin();
    let deadline = asked_at + flags.drain_timeout + SPARE;
    // The slow clients need time too.
    let half = asked_at + flags.drain_timeout / 2;
    until(half, || clients.is_over(ClientSet::Prompt)).await;
    let prompt_after = asked_at.elapsed();
    let before = probes.be_late();
    until(half, || probes.count() >= before + LATE_KNOCKS).await;
    clients.wake();
    // At the same time, so that the end of the one is not taken for that of the other.
    let (all_after, ended_after) = tokio::join!(
        async {
            until(deadline, || clients.is_over(ClientSet::All)).await;
            asked_at.elapsed()
        },
        async {
            until(deadline, || gateway.has_ended()).await;
            asked_at.elapsed()
        },
    );
    let ended_after = gateway.has_ended().then_some(ended_after);
    probes.stop();
    if ended_after.is_some() {
        // Bytes that the process sent before its end are still to be read.
        until(Instant::now() + SPARE, || clients.is_over(ClientSet::All)).await;
    }
    Ok(DrainTimes {
        asked_ns,
        prompt_after,
        all_after,
        ended_after,
        held_bytes: clients.bytes(ClientSet::Slow) - held,
    })
}

/// Waits until a condition holds, or until the deadline.
async fn until(deadline: Instant, is_so: impl Fn() -> bool) {
    while !is_so() && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
}
