//! `start`: the same initial events, once to a client that drops them and once to a gateway that was just started. How much later than
//! their delivery is the gateway's cache ready? The start of the process is not measured.

mod delivered;
pub mod fresh;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use kube_fanout::resource::Encoding;

use super::Scenario;
use crate::cli::{GatewayFlags, ServerFlags};
use crate::pods::{Fleet, seed};
use crate::process::Usage;
use crate::results::{Results, mib};
use crate::runner::gateway::GatewayProcess;
use crate::target::Target;
use delivered::{Delivery, Protocol, deliver};

/// Longest time for the initial events.
const WAIT: Duration = Duration::from_secs(60);
/// Seeding is bounded too: a real server takes 2,000 pods a second.
const SEED_WAIT: Duration = Duration::from_secs(300);

const DELIVERED: &str = "delivered, s";
const DELIVERED_HTTP1: &str = "delivered over HTTP/1.1, s";
const READY: &str = "ready, s";
const COLD: &str = "from the start of the process, cold, s";
const RESTORED: &str = "from the start of the process, from a checkpoint, s";

/// Times of one encoding, round by round.
#[derive(Debug, Default)]
struct StartTimes {
    delivered: Vec<Duration>,
    delivered_http1: Vec<Duration>,
    ready: Vec<Duration>,
    cold: Vec<Duration>,
    restored: Vec<Duration>,
    cpu: Vec<Duration>,
    upstream_cpu: Vec<Duration>,
    peak_rss: u64,
    len: u64,
    checkpoint_len: u64,
}

/// The initial events of all pods, to a client that drops them and to gateways just started: how soon after delivery is a cache ready?
#[derive(Debug, Clone, Parser)]
#[command(name = "start")]
#[command(mut_arg("path", |arg| arg.default_value("/api/v1/pods")))]
#[command(mut_arg("pods", |arg| arg.default_value("20000")))]
pub struct Start {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub fleet: Fleet,
    /// Encodings, one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [ObjectEncoding::Json, ObjectEncoding::Protobuf])]
    pub encodings: Vec<ObjectEncoding>,
    /// Rounds for each encoding.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// In each round a gateway also writes a checkpoint, ends, and is started again.
    #[arg(long)]
    pub restart: bool,
    #[command(flatten)]
    pub gateway: GatewayFlags,
}

/// Encodings of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectEncoding {
    /// JSON.
    Json,
    /// Kubernetes' protobuf.
    Protobuf,
}

impl Scenario for Start {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let (target, _) = super::targets(&self.server)?;
        let fleet = self.fleet;
        let started = Instant::now();
        let seeded = tokio::time::timeout(SEED_WAIT, seed(&target, fleet))
            .await
            .with_context(|| format!("no {} pods after {SEED_WAIT:?}", fleet.pods))??;
        results.note(format!(
            "{} pods were made in {:.1} s, the last ones of {} bytes in JSON",
            seeded.count,
            started.elapsed().as_secs_f64(),
            seeded.len
        ));
        let folder = tempfile::tempdir()?;
        let scene = StartRun {
            flags: self,
            folder: folder.path(),
            gateway_flags: fresh::gateway_flags(&self.server, &target, folder.path())?,
            target,
        };
        for encoding in self.encodings() {
            results.column(encoding.as_str());
            let times = scene.play(encoding, results).await?;
            times.report(fleet.pods, results);
        }
        Ok(())
    }
}

impl Start {
    /// The encodings that the flags name.
    fn encodings(&self) -> impl Iterator<Item = Encoding> {
        self.encodings.iter().map(|encoding| match encoding {
            ObjectEncoding::Json => Encoding::Json,
            ObjectEncoding::Protobuf => Encoding::Protobuf,
        })
    }
}

struct StartRun<'a> {
    flags: &'a Start,
    folder: &'a Path,
    gateway_flags: Vec<String>,
    target: Target,
}

impl StartRun<'_> {
    /// Deliveries and gateways take turns, so that a busy moment of the machine affects all of them.
    async fn play(&self, encoding: Encoding, results: &mut Results) -> Result<StartTimes> {
        let mut times = StartTimes::default();
        for round in 0..self.flags.rounds.max(1) {
            let delivery = self.deliver(Protocol::of(&self.target), encoding).await?;
            times.len = delivery.len;
            times.delivered.push(delivery.duration);
            if self.target.tls.is_some() {
                let delivery = self.deliver(Protocol::Http1, encoding).await?;
                times.delivered_http1.push(delivery.duration);
            }
            self.fill(encoding, round == 0, &mut times, results).await?;
            if self.flags.restart {
                self.restart(encoding, round, &mut times).await?;
            }
        }
        Ok(times)
    }

    async fn deliver(&self, protocol: Protocol, encoding: Encoding) -> Result<Delivery> {
        let path = &self.flags.server.path;
        deliver(&self.target, path, protocol, encoding, WAIT).await
    }

    /// Measures one gateway, from its first request until it answers from memory.
    async fn fill(
        &self,
        encoding: Encoding,
        is_checked: bool,
        times: &mut StartTimes,
        results: &mut Results,
    ) -> Result<()> {
        let program = self.flags.gateway.program()?;
        let mut gateway = GatewayProcess::start(&program, self.folder, &self.gateway_flags).await?;
        let pid = gateway.process.pid()?;
        let upstream_cpu = || self.flags.server.server_pid.map(Usage::of).transpose();
        let (before, upstream_before) = (Usage::of(pid)?, upstream_cpu()?);
        let started = Instant::now();
        fresh::ready(&gateway, encoding, WAIT).await?;
        times.ready.push(started.elapsed());
        let (after, upstream_after) = (Usage::of(pid)?, upstream_cpu()?);
        times.cpu.push(after.cpu.saturating_sub(before.cpu));
        if let Some((before, after)) = upstream_before.zip(upstream_after) {
            times
                .upstream_cpu
                .push(after.cpu.saturating_sub(before.cpu));
        }
        times.peak_rss = times.peak_rss.max(after.peak_rss);
        if is_checked {
            let protocol = Protocol::Http1;
            let path = &self.flags.server.path;
            let target = Target::new(&gateway.url, None, None)?;
            let initial = deliver(&target, path, protocol, encoding, WAIT).await?;
            // Events are upstream's bytes, only the marker is the gateway's own. A difference of half an object means that one is missing.
            let object_len = times.len / self.flags.fleet.pods.max(1) as u64;
            if initial.len.abs_diff(times.len) > object_len / 2 {
                results.fault(format!(
                    "{}: the gateway has {} bytes of initial events, upstream {}",
                    encoding.as_str(),
                    initial.len,
                    times.len
                ));
            }
        }
        gateway.process.stop().await
    }

    /// Measures a gateway without a checkpoint and the one that continues from its checkpoint, from the start of the process.
    async fn restart(
        &self,
        encoding: Encoding,
        round: usize,
        times: &mut StartTimes,
    ) -> Result<()> {
        let state = self
            .folder
            .join(format!("state-{}-{round}", encoding.as_str()));
        let program = self.flags.gateway.program()?;
        let mut flags = self.gateway_flags.clone();
        flags.extend(["--state-dir".to_owned(), state.display().to_string()]);
        for measured in [&mut times.cold, &mut times.restored] {
            let started = Instant::now();
            let mut gateway = GatewayProcess::start(&program, self.folder, &flags).await?;
            fresh::ready(&gateway, encoding, WAIT).await?;
            measured.push(started.elapsed());
            gateway.process.stop().await?;
        }
        let files = std::fs::read_dir(&state)?;
        let len: u64 = files
            .map(|file| Ok(file?.metadata()?.len()))
            .sum::<Result<_>>()?;
        times.checkpoint_len = times.checkpoint_len.max(len);
        std::fs::remove_dir_all(&state).context("the checkpoint")
    }
}

impl StartTimes {
    /// The best of all rounds: disturbances only add time.
    fn report(&self, pods: usize, results: &mut Results) {
        let best = |of: &[Duration]| of.iter().min().map(Duration::as_secs_f64);
        let each_us = |seconds: f64| seconds * 1e6 / pods.max(1) as f64;
        results.figure("pods", pods as f64);
        results.figure("initial events, MiB", mib(self.len));
        let delivered = best(&self.delivered).unwrap_or_default();
        let ready = best(&self.ready).unwrap_or_default();
        results.figure(DELIVERED, delivered);
        if let Some(http1) = best(&self.delivered_http1) {
            results.figure(DELIVERED_HTTP1, http1);
        }
        results.figure(READY, ready);
        results.figure("ready / delivered", ready / delivered);
        if let Some((cold, restored)) = best(&self.cold).zip(best(&self.restored)) {
            results.figure(COLD, cold);
            results.figure(RESTORED, restored);
            results.figure("from a checkpoint / cold", restored / cold);
            results.figure("checkpoint, MiB", mib(self.checkpoint_len));
        }
        if let Some(cpu) = best(&self.cpu) {
            results.figure("gateway CPU per object, µs", each_us(cpu));
        }
        if let Some(cpu) = best(&self.upstream_cpu) {
            results.figure("upstream CPU per object meanwhile, µs", each_us(cpu));
        }
        results.figure("gateway peak RSS, MiB", mib(self.peak_rss));
        let rounds = |name: &str, of: &[Duration]| {
            let seconds: Vec<_> = of
                .iter()
                .map(|times| format!("{:.2}", times.as_secs_f64()))
                .collect();
            format!("{name} {}", seconds.join(" "))
        };
        results.note(format!(
            "{} MiB of initial events; seconds by round: {}; {}; {}; {}",
            self.len >> 20,
            rounds("delivered", &self.delivered),
            rounds("ready", &self.ready),
            rounds("cold", &self.cold),
            rounds("from a checkpoint", &self.restored)
        ));
    }
}
