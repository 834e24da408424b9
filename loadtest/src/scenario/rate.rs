//! `rate`: as many events a second as upstream makes, to a few watchers: is each delivered, and how far behind are they?

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;

use super::population::Population;
use super::watch_run::{ActiveRun, WatchRun};
use crate::cli::players::Rate;
use crate::results::Results;

/// How often it is looked how far behind they are.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the results.
pub async fn run(flags: &Rate) -> Result<Results> {
    let Rate { setting, writers } = flags;
    let mut results = Results::new("rate");
    let population = Population::of(setting.watching.watchers);
    let mut run = WatchRun::churning("rate", setting, population)?;
    if let Some(churn) = &mut run.churn {
        churn.lanes = *writers;
    }
    let running = run.begin(&mut results).await?;
    let writing = run.churn.as_ref().map(crate::writer::Churn::start);
    let mut behind = Vec::new();
    let edges = {
        let measuring = running.measure(run.warm_up, run.duration);
        let looking = async {
            tokio::time::sleep(run.warm_up).await;
            // Ends with the measuring beside it.
            loop {
                behind.push(events_behind(&running));
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            edges = measuring => edges?,
            () = looking => anyhow::bail!("invariant: looking does not end"),
        }
    };
    run.window(&mut results, &edges);
    behind.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = behind.len().saturating_sub(1) as f64;
        behind.get((last * share) as usize).copied().unwrap_or(0.0)
    };
    results.figure("events behind the reference, median", at(0.5));
    results.figure("events behind the reference, max", at(1.0));
    let written = match writing {
        Some(writing) => Some(writing.finish().await),
        None => None,
    };
    running.finish(&mut results, written.as_ref()).await?;
    run.clean(&setting.churning).await;
    Ok(results)
}

/// How many events fewer than the reference a watcher has, on the average; the reference may be the later one.
fn events_behind(running: &ActiveRun<'_>) -> f64 {
    let delivered = running.control.delivered.load(Ordering::Relaxed) as f64;
    let each = delivered / running.run.population.watchers.max(1) as f64;
    (running.recording.reference().len() as f64 - each).max(0.0)
}
