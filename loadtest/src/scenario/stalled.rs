//! `stalled`: the same watchers twice, the second time with some that stop reading. Are the others delayed?

use anyhow::Result;
use clap::Parser;

use super::population::Population;
use super::watch_run::WatchRun;
use super::{Scenario, tax};
use crate::cli::WatchRunFlags;
use crate::results::Results;
use crate::swarm::pace::Slowness;

/// Steady twice, the second time with some watchers that stop reading: are the others delayed, do the stalled watchers recover?
#[derive(Debug, Clone, Parser)]
#[command(name = "stalled")]
pub struct Stalled {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Number of watchers that stop reading.
    #[arg(long, default_value_t = 50)]
    pub stalled: usize,
}

impl Scenario for Stalled {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let population = Population {
            excluded: self.stalled,
            ..Population::of(self.setting.watching.watchers)
        };
        let mut run = WatchRun::churning("all reading", &self.setting, population)?;
        let all_reading = run.run(results).await?;
        run.name = "some stalled";
        run.population.slowness = Some(Slowness::STALLED);
        let some_stalled = run.run(results).await?;
        tax::tax(results, &all_reading.latency, &some_stalled.latency);
        run.clean().await;
        Ok(())
    }
}
