//! `rolling`: gateways behind one address are restarted one after the other under watchers and churn. Does a client list again, does one
//! lose an event, and how late do events come?

mod balancer;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use tempfile::TempDir;

use super::Scenario;
use super::population::Population;
use super::start::fresh;
use super::watch_run::WatchRun;
use crate::cli::{GatewayFlags, WatchRunFlags};
use crate::client::Client;
use crate::process::raise_open_files;
use crate::results::Results;
use crate::runner::gateway::GatewayProcess;
use crate::target::Target;
use balancer::Balancer;

/// The end of a watch that makes its client list again.
const EXPIRED: &str = "ERROR 410";

/// Gateways behind one address, each with checkpoints, are restarted one after the other under watchers and churn: who lists again, who
/// loses an event, and how late do events come?
#[derive(Debug, Clone, Parser)]
#[command(name = "rolling")]
pub struct Rolling {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Number of gateways.
    #[arg(long, default_value_t = 3)]
    pub gateways: usize,
    #[command(flatten)]
    pub gateway: GatewayFlags,
}

impl Scenario for Rolling {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut fleet = GatewayFleet::start(self, &folder).await?;
        let mut setting = self.setting.clone();
        // Each watcher has a connection here, and one more behind the balancer.
        raise_open_files(setting.watching.watchers * 3)?;
        let server = setting.server.target.clone();
        setting.server.target.clone_from(&fleet.balancer.url);
        setting.server.reference = Some(server);
        setting.server.server_pid = None;
        let population = || Population::of(setting.watching.watchers);
        let quiet = WatchRun::churning("quiet", &setting, population())?;
        quiet.run(results).await?;
        let mut rolled = WatchRun::churning("rolling", &setting, population())?;
        rolled.is_rolling = true;
        let ends = fleet.roll_under(&rolled, results).await?;
        rolled.clean().await;
        results.figure("lists again", ends as f64);
        if ends > 0 {
            results.fault(format!("rolling: {ends} watches ended with 410"));
        }
        fleet.stop().await
    }
}

struct FleetMember {
    gateway: GatewayProcess,
    address: SocketAddr,
    flags: Vec<String>,
}

/// The gateways and the address in front of them.
struct GatewayFleet<'a> {
    flags: &'a Rolling,
    folder: &'a Path,
    balancer: Balancer,
    members: Vec<FleetMember>,
}

impl<'a> GatewayFleet<'a> {
    async fn start(flags: &'a Rolling, folder: &'a TempDir) -> Result<Self> {
        let (target, _) = super::targets(&flags.setting.server)?;
        let folder = folder.path();
        let upstream = fresh::gateway_flags(&flags.setting.server, &target, folder)?;
        let mut fleet = Self {
            flags,
            folder,
            balancer: Balancer::start().await?,
            members: Vec::new(),
        };
        for number in 0..flags.gateways.max(1) {
            let state = folder.join(format!("state-{number}"));
            let mut flags = upstream.clone();
            flags.extend(["--state-dir".to_owned(), state.display().to_string()]);
            let member = fleet.start_member(flags).await?;
            fleet.balancer.add(member.address);
            fleet.members.push(member);
        }
        Ok(fleet)
    }

    /// Starts a gateway, and waits until its cache can be read.
    async fn start_member(&self, flags: Vec<String>) -> Result<FleetMember> {
        let program = self.flags.gateway.program()?;
        let gateway = GatewayProcess::start(&program, self.folder, &flags).await?;
        let target = Target::new(&gateway.url, None, None)?;
        let address = target.address;
        let first = format!(
            "{}?resourceVersion=0&limit=1",
            self.flags.setting.server.path
        );
        Client::new(target).json(&first).await?;
        Ok(FleetMember {
            gateway,
            address,
            flags,
        })
    }

    /// Restarts all gateways while watchers are measured; returns how many watches ended with 410.
    async fn roll_under(&mut self, run: &WatchRun<'_>, results: &mut Results) -> Result<u64> {
        let running = run.begin(results).await?;
        let writing = run.churn.as_ref().context("--write-rate 0")?.start();
        tokio::time::sleep(run.warm_up).await;
        let from = running.measure_begin()?;
        let started = Instant::now();
        for place in 0..self.members.len() {
            self.restart(place).await?;
        }
        let rolled = started.elapsed();
        tokio::time::sleep(run.duration.saturating_sub(rolled)).await;
        let edges = [from, running.measure_end()?];
        let written = writing.finish().await;
        run.window(results, &edges);
        results.figure("all restarted after, s", rolled.as_secs_f64());
        let recorder = running.finish(results, Some(&written)).await?;
        Ok(recorder.ends.get(EXPIRED).copied().unwrap_or_default())
    }

    async fn restart(&mut self, place: usize) -> Result<()> {
        let member = self.members.get_mut(place).context("no such gateway")?;
        self.balancer.remove(member.address);
        member.gateway.process.stop().await?;
        let flags = member.flags.clone();
        let member = self.start_member(flags).await?;
        self.balancer.add(member.address);
        if let Some(old) = self.members.get_mut(place) {
            *old = member;
        }
        Ok(())
    }

    async fn stop(mut self) -> Result<()> {
        for member in &mut self.members {
            member.gateway.process.stop().await?;
        }
        Ok(())
    }
}
