//! `stalled`: the same watchers twice, the second time with some that stop reading; do the others notice?

use anyhow::Result;

use super::population::Population;
use super::tax;
use super::watch_run::WatchRun;
use crate::cli::Stalled;
use crate::results::Results;
use crate::swarm::pace::{ReadPace, Slowness};

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the results.
pub async fn run(flags: &Stalled) -> Result<Results> {
    let Stalled {
        setting,
        stalled,
        receive_buffer,
    } = flags;
    let mut results = Results::new("stalled");
    let population = Population {
        apart: *stalled,
        ..Population::of(setting.watching.watchers)
    };
    let mut run = WatchRun::churning("all reading", setting, population)?;
    let all_reading = run.run(&mut results).await?;
    run.name = "some stalled";
    run.population.slowness = Some(Slowness {
        pace: ReadPace::Never,
        receive_buffer: *receive_buffer,
        renews_every: None,
    });
    let some_stalled = run.run(&mut results).await?;
    tax::tax(&mut results, &all_reading.latency, &some_stalled.latency);
    run.clean(&setting.churning).await;
    Ok(results)
}
