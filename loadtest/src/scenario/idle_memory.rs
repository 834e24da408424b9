//! `idle-memory`: what a watch costs the server while nothing happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;

use super::population::Population;
use super::watch_run::{ready_wait, spare};
use super::workers::{WorkerConfig, Workers};
use super::{Scenario, connections, swarm_config, targets};
use crate::cli::{ServerFlags, WatchFlags, seconds};
use crate::client::{Client, list_version};
use crate::process::{Usage, raise_open_files};
use crate::recorder::Control;
use crate::results::{Results, mib};

/// Many idle watches: server memory per watch.
#[derive(Debug, Clone, Parser)]
#[command(name = "idle-memory")]
pub struct IdleMemory {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub watching: WatchFlags,
    /// How long to wait before memory is read, such as 5s.
    #[arg(long, default_value = "5s", value_parser = seconds)]
    pub settle: Duration,
}

impl Scenario for IdleMemory {
    fn time_limit(&self) -> Duration {
        self.settle * 2 + spare(self.watching.watchers)
    }

    async fn run(&self, results: &mut Results) -> Result<()> {
        let Self {
            server,
            watching,
            settle,
        } = self;
        let pid = server.server_pid;
        let pid = pid.context("idle-memory needs --server-pid")?;
        raise_open_files(connections(watching))?;
        let (target, reference) = targets(server)?;
        let list = Client::new(reference)
            .json(&format!("{}?limit=1", server.path))
            .await?;
        // This list fills the server's cache before memory is read.
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
        let started = Instant::now();
        let control = Arc::new(Control::default());
        let workers = Workers::start(&config, &plans, &Arc::default(), control).await?;
        workers.ready(ready_wait(watching.watchers)).await?;
        let ready_after = started.elapsed();
        let connected = Usage::of(pid)?;
        tokio::time::sleep(*settle).await;
        let settled = Usage::of(pid)?;
        let recorder = workers.finish().await?.recorder;
        results.column("target");
        results.figure("watchers", watching.watchers as f64);
        results.figure("all watching after, s", ready_after.as_secs_f64());
        results.figure("server RSS before, MiB", mib(before.rss));
        results.figure("server RSS after, MiB", mib(settled.rss));
        let count = watching.watchers.max(1) as f64;
        for (name, usage) in [("just connected", connected), ("settled", settled)] {
            let kib = (usage.rss as f64 - before.rss as f64) / 1024.0;
            results.figure(&format!("KiB per watch, {name}"), kib / count);
        }
        let cpu = connected.cpu.saturating_sub(before.cpu);
        results.figure("CPU to open a watch, µs", cpu.as_secs_f64() * 1e6 / count);
        if !recorder.ends.is_empty() {
            let messages: Vec<_> = recorder.messages.lines().collect();
            let ends = &recorder.ends;
            results.fault(format!("streams ended: {ends:?} {messages:?}"));
        }
        Ok(())
    }
}
