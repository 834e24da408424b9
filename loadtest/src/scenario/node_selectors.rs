//! `node-selectors`: as kubelets do, each watcher asks for the pods of one node; a few of them first, then all: the server's work for an
//! event shall hardly depend on how many there are.

use anyhow::Result;

use super::population::{Population, Select};
use super::watch_run::WatchRun;
use super::watch_run::window::SERVER_PER_UPSTREAM_EVENT;
use crate::cli::players::NodeSelectors;
use crate::results::Results;
use crate::writer::shape::Shape;

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the results.
pub async fn run(flags: &NodeSelectors) -> Result<Results> {
    let NodeSelectors {
        setting,
        reference_watchers,
        nodes,
    } = flags;
    let nodes = nodes.unwrap_or(setting.watching.watchers);
    let mut results = Results::new("node-selectors");
    let population = |watchers: usize| Population {
        select: Select::Nodes(nodes),
        ..Population::of(watchers)
    };
    let few = format!("{reference_watchers} watchers");
    let many = format!("{} watchers", setting.watching.watchers);
    let mut run = WatchRun::churning(&few, setting, population(*reference_watchers))?;
    if let Some(churn) = &mut run.churn {
        churn.shape = Shape::Pod { nodes };
        churn.prefix = "pod".to_owned();
    }
    run.run(&mut results).await?;
    run.name = &many;
    run.population = population(setting.watching.watchers);
    run.run(&mut results).await?;
    run.clean(&setting.churning).await;
    results.ratios(SERVER_PER_UPSTREAM_EVENT);
    Ok(results)
}
