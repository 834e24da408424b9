//! `joiners`: clients that come and go while objects churn: they list and watch, watch on from where they left, or from the version
//! that the run began with. At the end all stay, and each must hold what the server holds.

use anyhow::Result;

use super::population::Population;
use super::watch_run::WatchRun;
use crate::cli::players::Joiners;
use crate::results::Results;

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the results.
pub async fn run(flags: &Joiners) -> Result<Results> {
    let Joiners { setting } = flags;
    let mut results = Results::new("joiners");
    let population = Population {
        visits: true,
        ..Population::of(setting.watching.watchers)
    };
    let run = WatchRun::churning("joiners", setting, population)?;
    run.run(&mut results).await?;
    run.clean(&setting.churning).await;
    Ok(results)
}
