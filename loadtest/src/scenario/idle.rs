//! `idle-memory`: what a watch costs the server while nothing happens.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};

use super::population::Population;
use super::watch_run::ready_wait;
use super::workers::{WorkerConfig, Workers};
use super::{connections, swarm_config, targets};
use crate::cli::Idle;
use crate::client::{Client, list_version};
use crate::process::{Usage, raise_open_files};
use crate::recorder::Control;
use crate::results::Results;

/// Runs the scenario.
///
/// # Errors
/// If it could not be run.
pub async fn run(flags: &Idle) -> Result<Results> {
    let Idle {
        server,
        watching,
        settle,
    } = flags;
    let pid = server
        .server_pid
        .context("idle-memory needs --server-pid")?;
    raise_open_files(connections(watching))?;
    let (target, reference) = targets(server)?;
    let list = Client::new(reference)
        .json(&format!("{}?limit=1", server.path))
        .await?;
    // The list through the server under test makes its cache before memory is read.
    Client::new(target.clone())
        .json(&format!("{}?resourceVersion=0&limit=1", server.path))
        .await?;
    tokio::time::sleep(*settle).await;
    let before = Usage::of(pid)?;
    let population = Population::of(watching.watchers);
    let start = list_version(&list)?;
    let plans = population.plans(&server.path, start);
    let swarm_config = swarm_config(server, Some(watching), target);
    let config = WorkerConfig {
        server,
        swarm_config: &swarm_config,
        population: &population,
        processes: watching.processes,
        path: &server.path,
        start,
    };
    let begun = Instant::now();
    let control = Arc::new(Control::default());
    let workers = Workers::start(&config, &plans, &Arc::default(), control).await?;
    workers.ready(ready_wait(watching.watchers)).await?;
    let ready_after = begun.elapsed();
    let connected = Usage::of(pid)?;
    tokio::time::sleep(*settle).await;
    let after = Usage::of(pid)?;
    let recorder = workers.finish().await?.recorder;
    let mut results = Results::new("idle-memory");
    results.column("target");
    results.figure("watchers", watching.watchers as f64);
    results.figure("all watching after, s", ready_after.as_secs_f64());
    results.figure(
        "server RSS before, MiB",
        before.rss as f64 / f64::from(1 << 20),
    );
    results.figure(
        "server RSS after, MiB",
        after.rss as f64 / f64::from(1 << 20),
    );
    let per_watch =
        |rss: u64| (rss as f64 - before.rss as f64) / 1024.0 / watching.watchers.max(1) as f64;
    results.figure("KiB per watch, just connected", per_watch(connected.rss));
    results.figure("KiB per watch, settled", per_watch(after.rss));
    results.figure(
        "CPU to open a watch, µs",
        connected.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6
            / watching.watchers.max(1) as f64,
    );
    if !recorder.ends.is_empty() {
        results.fault(format!(
            "streams ended: {:?} {:?}",
            recorder.ends,
            recorder.messages.lines().collect::<Vec<_>>()
        ));
    }
    Ok(results)
}
