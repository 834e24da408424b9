//! Load tests for kube-fanout and any Kubernetes API server: swarms of clients that check what they get.
//!
//! Exit code 0: all well; 1: something was lost, doubled, out of order or incomplete, or the run failed; 2: wrong usage.

mod cli;
mod client;
mod follow;
mod http2;
mod lister;
mod pods;
mod process;
mod recorder;
mod recording;
mod report;
mod runner;
mod scenario;
mod sheet;
mod socket_loop;
mod swarm;
mod target;
mod verify;
mod watcher;
mod wire;
mod writer;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use cli::{Churning, Flags, Scenario};
use sheet::Sheet;

/// The gateway's allocator: what its informers use in a program of its kind, and kube-rs's beside them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a run may take besides its measured window, per run within a scenario.
const SPARE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let flags = Flags::parse();
    match run(&flags.scenario) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kube-fanout-loadtest: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a scenario; true if nothing was wrong.
fn run(scenario: &Scenario) -> Result<bool> {
    match scenario {
        Scenario::SocketLoop(flags) => return socket_loop::run(flags).map(|()| true),
        Scenario::Follow(flags) => return follow::run(flags).map(|()| true),
        Scenario::Run(flags) => return runner::run(flags),
        Scenario::Report(flags) => return runner::render(flags).map(|()| true),
        Scenario::Guarded(flags) => match runner::guarded::become_program(flags)? {},
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let limit = limit(scenario);
    let (sheets, json) = runtime.block_on(async {
        tokio::time::timeout(limit, play(scenario))
            .await
            .with_context(|| format!("not over after {limit:?}"))?
    })?;
    // Nothing of value is left; a connection that hangs shall not keep the process.
    runtime.shutdown_background();
    for sheet in &sheets {
        println!("{sheet}");
    }
    if let Some(file) = json {
        sheet::write_json(&sheets, &file)?;
    }
    Ok(sheets.iter().all(Sheet::is_clean))
}

async fn play(scenario: &Scenario) -> Result<(Vec<Sheet>, Option<PathBuf>)> {
    let (sheet, json) = match scenario {
        Scenario::Steady(flags) => (
            scenario::steady::run(flags).await?,
            flags.server.json.clone(),
        ),
        Scenario::Stalled(flags) => (
            scenario::stalled::run(flags).await?,
            flags.server.json.clone(),
        ),
        Scenario::RelistHerd(flags) => {
            (scenario::herd::run(flags).await?, flags.server.json.clone())
        }
        Scenario::GzipHerd(flags) => (
            scenario::herd::run_gzip(flags).await?,
            flags.server.json.clone(),
        ),
        Scenario::IdleMemory(flags) => {
            (scenario::idle::run(flags).await?, flags.server.json.clone())
        }
        Scenario::Informers(flags) => {
            return Ok((scenario::informers::run(flags).await?, flags.json.clone()));
        }
        Scenario::SeedPods(flags) => (scenario::informers::seed(flags).await?, None),
        Scenario::SocketLoop(_)
        | Scenario::Follow(_)
        | Scenario::Run(_)
        | Scenario::Report(_)
        | Scenario::Guarded(_) => {
            anyhow::bail!("invariant: served above")
        }
    };
    Ok((vec![sheet], json))
}

/// When a scenario is given up.
fn limit(scenario: &Scenario) -> Duration {
    let one = |churning: &Churning| churning.warm_up + churning.duration + SPARE;
    match scenario {
        Scenario::Steady(flags) => one(&flags.churning) * (1 + u32::from(flags.baseline)),
        Scenario::Stalled(flags) => one(&flags.churning) * 2,
        Scenario::RelistHerd(flags) => {
            flags.round_wait * u32::try_from(flags.rounds).unwrap_or(u32::MAX) + SPARE
        }
        Scenario::GzipHerd(flags) => {
            flags.round_wait * u32::try_from(flags.rounds * 2).unwrap_or(u32::MAX) + SPARE
        }
        Scenario::IdleMemory(flags) => flags.settle * 2 + SPARE,
        Scenario::Informers(flags) => scenario::informers::limit(flags),
        Scenario::SeedPods(_) => scenario::informers::SEED_WAIT,
        Scenario::SocketLoop(flags) => flags.duration,
        Scenario::Follow(_) | Scenario::Run(_) | Scenario::Report(_) | Scenario::Guarded(_) => {
            Duration::MAX
        }
    }
}
