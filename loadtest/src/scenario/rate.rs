//! `rate`: a few watchers of as many events a second as upstream produces: is each delivered, and how far behind are the watchers?

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use super::Scenario;
use super::population::Population;
use super::watch_run::{ActiveRun, WatchRun};
use crate::cli::WatchRunFlags;
use crate::results::{Results, at_share};
use crate::writer::Churn;

/// How often the distance to the reference is sampled.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// As many events as upstream produces, to a few watchers: how far behind are they?
#[derive(Debug, Clone, Parser)]
#[command(name = "rate")]
#[command(mut_arg("watchers", |arg| arg.default_value("8")))]
#[command(mut_arg("write_rate", |arg| arg.default_value("0")))]
pub struct Rate {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Connections of the writer, if it is not the server that churns.
    #[arg(long, default_value_t = 32)]
    pub writers: usize,
}

impl Scenario for Rate {
    fn time_limit(&self) -> Duration {
        self.setting.time_limit()
    }

    async fn run(&self, results: &mut Results) -> Result<()> {
        let population = Population::of(self.setting.watching.watchers);
        let mut run = WatchRun::churning("rate", &self.setting, population)?;
        if let Some(churn) = &mut run.churn {
            churn.lanes = self.writers;
        }
        let running = run.begin(results).await?;
        let writing = run.churn.as_ref().map(Churn::start);
        let mut behind = Vec::new();
        let snapshots = {
            let measuring = running.measure(run.warm_up, run.duration);
            let sampling = async {
                tokio::time::sleep(run.warm_up).await;
                // Cancelled when the measurement ends.
                loop {
                    behind.push(events_behind(&running));
                    tokio::time::sleep(SAMPLE_EVERY).await;
                }
            };
            tokio::select! {
                snapshots = measuring => snapshots?,
                () = sampling => anyhow::bail!("invariant: sampling does not end"),
            }
        };
        run.window(results, &snapshots);
        behind.sort_by(f64::total_cmp);
        for (name, share) in [("median", 0.5), ("max", 1.0)] {
            let row = format!("events behind the reference, {name}");
            results.figure(&row, at_share(&behind, share));
        }
        let writes = match writing {
            Some(writing) => Some(writing.finish().await),
            None => None,
        };
        running.finish(results, writes.as_ref()).await?;
        run.clean().await;
        Ok(())
    }
}

/// By how many events the average watcher is behind the reference; 0 if the reference is the slower one.
fn events_behind(running: &ActiveRun<'_>) -> f64 {
    let delivered = running.control.delivered.load(Ordering::Relaxed) as f64;
    let each = delivered / running.run.population.watchers.max(1) as f64;
    (running.recording.reference().len() as f64 - each).max(0.0)
}
