//! `joiners`: clients that come and go while objects churn. They list and watch, resume where they left, or watch from the version that the
//! run began with. At the end all of them stay, and each must hold the server's state.

use anyhow::Result;
use clap::Parser;

use super::Scenario;
use super::population::Population;
use super::watch_run::WatchRun;
use crate::cli::WatchRunFlags;
use crate::results::Results;

/// Clients come and go while objects churn: each ends with the server's state.
#[derive(Debug, Clone, Parser)]
#[command(name = "joiners")]
#[command(mut_arg("watchers", |arg| arg.default_value("200")))]
pub struct Joiners {
    #[command(flatten)]
    pub setting: WatchRunFlags,
}

impl Scenario for Joiners {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let population = Population {
            visits: true,
            ..Population::of(self.setting.watching.watchers)
        };
        let run = WatchRun::churning("joiners", &self.setting, population)?;
        run.run(results).await?;
        run.clean().await;
        Ok(())
    }
}
