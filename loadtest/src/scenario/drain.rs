//! `drain`: a gateway with a mixed clients is asked to end, while objects change. Every stream must end in order and between two events, with
//! all events up to there; lists that are under way must come whole; who comes new must be turned away; and the gateway must be gone in time.

mod client;
mod clients;
mod collection;
pub mod gateway;
mod probes;
mod verdict;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::targets;
use super::watch_run::ready_wait;
use crate::cli::players::Drain;
use crate::client::Client;
use crate::process::raise_open_files;
use crate::recorder::now_ns;
use crate::results::Results;
use clients::{ClientSet, DrainClients};
use collection::Collections;
use gateway::{GatewayControl, GatewayPid};
use probes::ConnectionProbes;
use verdict::DrainTimes;

/// How often it is looked how far they are.
const LOOK: Duration = Duration::from_millis(5);
/// New connections that are tried while the gateway waits for its last clients.
const LATE_KNOCKS: usize = 5;
/// What may come after the time-out: the log's last lines, the system's cleaning up, a machine that is busy.
const SPARE: Duration = Duration::from_secs(5);
/// Time for the reference to see the last write.
const SETTLE_WAIT: Duration = Duration::from_secs(10);

/// When a run is given up.
pub fn limit(flags: &Drain) -> Duration {
    let clients = flags.watchers + flags.listers;
    let end = flags.drain_timeout + SPARE * 2 + SETTLE_WAIT * 3;
    ready_wait(clients) * 2 + flags.churning.warm_up + flags.churning.duration + end
}

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the gateway are in the results.
pub async fn run(flags: &Drain) -> Result<Results> {
    let pid = flags.server.server_pid;
    let pid = pid.context("drain needs --server-pid: what is to end")?;
    play(flags, &GatewayPid(pid)).await
}

/// Plays it with a gateway that is asked to end, and has ended, as it says.
///
/// # Errors
/// As [`run`].
pub async fn play(flags: &Drain, gateway: &impl GatewayControl) -> Result<Results> {
    raise_open_files(flags.watchers + flags.listers)?;
    let (target, reference) = targets(&flags.server)?;
    // A list through the gateway makes its cache, so that the reference's version is within its history.
    let first = format!("{}?resourceVersion=0&limit=1", flags.server.path);
    Client::new(target.clone()).json(&first).await?;
    let mut collections = Collections::begin(flags, &reference).await?;
    let begun = Instant::now();
    let clients = DrainClients::begin(flags, &target, &collections).await?;
    let mut results = Results::new("drain");
    results.column("drain");
    results.figure("all there after, s", begun.elapsed().as_secs_f64());
    let writing = collections.write();
    tokio::time::sleep(flags.churning.warm_up + flags.churning.duration).await;

    let probes = ConnectionProbes::new(target, format!("{}?limit=1", flags.server.path));
    let course = end(flags, gateway, &clients, &probes).await?;
    let written = writing.finish().await;
    course.report(&mut results, flags.drain_timeout);
    probes.finish().report(&mut results);
    let finished = clients.finish()?;
    let seen = finished.furthest();
    collections.settle(&written, seen, &mut results).await;
    written.report(&collections, &mut results);
    finished.report(course.asked_ns, &collections, &mut results);
    collections.clean(&flags.churning).await;
    Ok(results)
}

/// Asks the gateway to end, and watches until it has or its time is over. Those who are slow read on when the others are gone and some have
/// knocked in vain.
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
    // The slow need their time too.
    let half = asked_at + flags.drain_timeout / 2;
    until(half, || clients.is_over(ClientSet::Prompt)).await;
    let prompt_after = asked_at.elapsed();
    let before = probes.be_late();
    until(half, || probes.count() >= before + LATE_KNOCKS).await;
    clients.wake();
    until(deadline, || clients.is_over(ClientSet::All)).await;
    let all_after = asked_at.elapsed();
    until(deadline, || gateway.has_ended()).await;
    let ended_after = gateway.has_ended().then(|| asked_at.elapsed());
    probes.stop();
    if ended_after.is_some() {
        // What the end of a process closes is still to be read.
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

/// Waits until something is so, or it is so late.
async fn until(deadline: Instant, is_so: impl Fn() -> bool) {
    while !is_so() && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
}
