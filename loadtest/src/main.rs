//! Load tests for kube-fanout and any Kubernetes API server: swarms of clients that check what they get.
//!
//! Exit code 0: all well; 1: something was lost, doubled, out of order or incomplete, or the run failed; 2: wrong usage.

mod attack;
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
mod results;
mod runner;
mod scenario;
mod socket_loop;
mod swarm;
mod target;
mod texts;
mod verify;
mod watcher;
mod wire;
mod writer;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use cli::players::BurstFlags;
use cli::{Flags, HerdFlags, Scenario, ServerFlags, WatchFlags, WatchRunFlags};
use results::Results;
use scenario::watch_run::spare;

/// The gateway's allocator: what its informers use in a program of its kind, and kube-rs's beside them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What rounds of lists may take besides.
const SPARE: Duration = Duration::from_secs(60);
/// What `overload` may take besides its load: making ballast, late watchers.
const OVERLOAD_SPARE: Duration = Duration::from_secs(120);

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
        Scenario::Merge(flags) => return runner::documents::merge(flags).map(|()| true),
        Scenario::Page(flags) => {
            print!("{}", runner::documents::show_page(flags)?);
            return Ok(true);
        }
        Scenario::Quote(flags) => return runner::documents::quote(flags).map(|()| true),
        Scenario::GuardedProgram(flags) => match runner::guarded::become_program(flags)? {},
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    if let Scenario::Part(server) = scenario {
        // Ends when its input does: its owner has the deadline.
        let result = runtime.block_on(scenario::workers::process::run(server));
        runtime.shutdown_background();
        return result.map(|()| true);
    }
    if let Scenario::Attack(flags) = scenario {
        let result = runtime.block_on(attack::run(flags));
        runtime.shutdown_background();
        return result.map(|()| true);
    }
    let limit = limit(scenario);
    let (all_results, json) = runtime.block_on(async {
        tokio::time::timeout(limit, play(scenario))
            .await
            .with_context(|| format!("not over after {limit:?}"))?
    })?;
    // Nothing of value is left; a connection that hangs shall not keep the process.
    runtime.shutdown_background();
    for results in &all_results {
        println!("{results}");
    }
    if let Some(file) = json {
        results::write_json(&all_results, &file)?;
    }
    Ok(all_results.iter().all(Results::is_clean))
}

async fn play(scenario: &Scenario) -> Result<(Vec<Results>, Option<PathBuf>)> {
    let results = match scenario {
        Scenario::Steady(flags) => scenario::steady::run(flags).await?,
        Scenario::Stalled(flags) => scenario::stalled::run(flags).await?,
        Scenario::RelistHerd(flags) => scenario::herd::run(flags, "relist-herd").await?,
        Scenario::GzipHerd(flags) => scenario::herd::run_gzip(flags).await?,
        Scenario::IdleMemory(flags) => scenario::idle::run(flags).await?,
        Scenario::Burst(flags) => scenario::burst::run(flags).await?,
        Scenario::QuietEnd(flags) => scenario::quiet_end::run(flags).await?,
        Scenario::NodeSelectors(flags) => scenario::node_selectors::run(flags).await?,
        Scenario::BigObject(flags) => scenario::burst::run_big_object(flags).await?,
        Scenario::WatchListHerd(flags) => scenario::herd::run_watch_list(flags).await?,
        Scenario::Slow(flags) => scenario::slow::run(flags).await?,
        Scenario::Joiners(flags) => scenario::joiners::run(flags).await?,
        Scenario::BigLists(flags) => scenario::herd::run(&flags.herd, "big-lists").await?,
        Scenario::Rate(flags) => scenario::rate::run(flags).await?,
        Scenario::Overload(flags) => scenario::overload::run(flags).await?,
        Scenario::Drain(flags) => scenario::drain::run(flags).await?,
        Scenario::Hostile(flags) => scenario::hostile::run(flags).await?,
        Scenario::Start(flags) => scenario::start::run(flags).await?,
        Scenario::ReconnectStorm(flags) => scenario::reconnect_storm::run(flags).await?,
        Scenario::Informers(flags) => {
            return Ok((scenario::informers::run(flags).await?, flags.json.clone()));
        }
        Scenario::SeedPods(flags) => scenario::informers::seed(flags).await?,
        Scenario::SocketLoop(_)
        | Scenario::Follow(_)
        | Scenario::Part(_)
        | Scenario::Attack(_)
        | Scenario::Run(_)
        | Scenario::Report(_)
        | Scenario::Merge(_)
        | Scenario::Page(_)
        | Scenario::Quote(_)
        | Scenario::GuardedProgram(_) => {
            anyhow::bail!("invariant: served above")
        }
    };
    let json = server(scenario).and_then(|server| server.json.clone());
    Ok((vec![results], json))
}

/// The flags that name the server under test, if the scenario has them.
fn server(scenario: &Scenario) -> Option<&ServerFlags> {
    Some(match scenario {
        Scenario::Steady(flags) => &flags.setting.server,
        Scenario::Stalled(flags) => &flags.setting.server,
        Scenario::RelistHerd(flags) | Scenario::GzipHerd(flags) => &flags.server,
        Scenario::IdleMemory(flags) => &flags.server,
        Scenario::Burst(flags) => &flags.server,
        Scenario::QuietEnd(flags) => &flags.server,
        Scenario::NodeSelectors(flags) => &flags.setting.server,
        Scenario::BigObject(flags) => &flags.server,
        Scenario::WatchListHerd(flags) => &flags.herd.server,
        Scenario::Slow(flags) => &flags.setting.server,
        Scenario::Joiners(flags) => &flags.setting.server,
        Scenario::BigLists(flags) => &flags.herd.server,
        Scenario::Rate(flags) => &flags.setting.server,
        Scenario::Overload(flags) => &flags.setting.server,
        Scenario::Drain(flags) => &flags.server,
        Scenario::Hostile(flags) => &flags.server,
        Scenario::Start(flags) => &flags.server,
        Scenario::ReconnectStorm(flags) => &flags.setting.server,
        Scenario::Informers(_)
        | Scenario::SeedPods(_)
        | Scenario::SocketLoop(_)
        | Scenario::Follow(_)
        | Scenario::Part(_)
        | Scenario::Attack(_)
        | Scenario::Run(_)
        | Scenario::Report(_)
        | Scenario::Merge(_)
        | Scenario::Page(_)
        | Scenario::Quote(_)
        | Scenario::GuardedProgram(_) => return None,
    })
}

/// When a scenario is given up.
fn limit(scenario: &Scenario) -> Duration {
    let one = |setting: &WatchRunFlags| {
        let churning = &setting.churning;
        churning.warm_up + churning.duration + spare(setting.watching.watchers)
    };
    // Each burst may wait for its watchers as long as a whole run does.
    let bursts = |bursts: &BurstFlags, watching: &WatchFlags| {
        let count = u32::try_from(bursts.bursts).unwrap_or(u32::MAX);
        (bursts.quiet + spare(watching.watchers)) * count.max(1)
    };
    // The objects are made before, and listed once or more.
    let herd = |herd: &HerdFlags| {
        let rounds = u32::try_from(herd.rounds).unwrap_or(u32::MAX);
        herd.round_wait * rounds.saturating_add(3) + SPARE
    };
    match scenario {
        Scenario::Steady(flags) => one(&flags.setting) * (1 + u32::from(flags.baseline)),
        Scenario::Stalled(flags) => one(&flags.setting) * 2,
        Scenario::RelistHerd(flags) => herd(flags),
        Scenario::GzipHerd(flags) => {
            flags.round_wait * u32::try_from(flags.rounds * 2).unwrap_or(u32::MAX) + SPARE
        }
        Scenario::IdleMemory(flags) => flags.settle * 2 + spare(flags.watching.watchers),
        Scenario::Burst(flags) => bursts(&flags.bursts, &flags.watching),
        Scenario::BigObject(flags) => bursts(&flags.bursts, &flags.watching),
        Scenario::QuietEnd(flags) => scenario::quiet_end::limit(flags),
        Scenario::NodeSelectors(flags) => one(&flags.setting) * 2,
        Scenario::WatchListHerd(flags) => herd(&flags.herd),
        Scenario::BigLists(flags) => herd(&flags.herd),
        Scenario::Slow(flags) => {
            let runs = u32::try_from(flags.kind.len() * 2).unwrap_or(u32::MAX);
            one(&flags.setting) * runs
        }
        Scenario::Joiners(flags) => one(&flags.setting),
        Scenario::Rate(flags) => one(&flags.setting),
        Scenario::ReconnectStorm(flags) => one(&flags.setting) * 3,
        Scenario::Overload(flags) => one(&flags.setting) + OVERLOAD_SPARE,
        Scenario::Drain(flags) => scenario::drain::limit(flags),
        Scenario::Hostile(flags) => scenario::hostile::limit(flags),
        Scenario::Start(flags) => scenario::start::limit(flags),
        Scenario::Informers(flags) => scenario::informers::limit(flags),
        Scenario::SeedPods(_) => scenario::informers::SEED_WAIT,
        Scenario::SocketLoop(flags) => flags.duration,
        Scenario::Follow(_)
        | Scenario::Part(_)
        | Scenario::Attack(_)
        | Scenario::Run(_)
        | Scenario::Report(_)
        | Scenario::Merge(_)
        | Scenario::Page(_)
        | Scenario::Quote(_)
        | Scenario::GuardedProgram(_) => Duration::MAX,
    }
}
