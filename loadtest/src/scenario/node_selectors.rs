//! `node-selectors`: like kubelets, each watcher selects the pods of one node; first a few watchers, then all. The server's work for an
//! event should hardly depend on their number.

use anyhow::Result;
use clap::Parser;

use super::Scenario;
use super::population::{Population, Select};
use super::watch_run::WatchRun;
use super::watch_run::window::SERVER_PER_UPSTREAM_EVENT;
use crate::cli::WatchRunFlags;
use crate::results::Results;
use crate::writer::shape::Shape;

/// Each watcher selects the pods of its own node: first a few watchers, then all; CPU for each event.
#[derive(Debug, Clone, Parser)]
#[command(name = "node-selectors")]
#[command(mut_arg("path", |arg| arg.default_value("/api/v1/namespaces/default/pods")))]
#[command(mut_arg("write_rate", |arg| arg.default_value("1000")))]
#[command(mut_arg("objects", |arg| arg.default_value("10000")))]
pub struct NodeSelectors {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Number of watchers in the first run, which the second is compared with.
    #[arg(long, default_value_t = 5)]
    pub reference_watchers: usize,
    /// Nodes that the pods are spread over; by default one for each watcher.
    #[arg(long)]
    pub nodes: Option<usize>,
}

impl Scenario for NodeSelectors {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let watchers = self.setting.watching.watchers;
        let nodes = self.nodes.unwrap_or(watchers);
        let population = |watchers: usize| Population {
            select: Select::Nodes(nodes),
            ..Population::of(watchers)
        };
        let few = format!("{} watchers", self.reference_watchers);
        let many = format!("{watchers} watchers");
        let first = population(self.reference_watchers);
        let mut run = WatchRun::churning(&few, &self.setting, first)?;
        if let Some(churn) = &mut run.churn {
            churn.shape = Shape::Pod { nodes };
            churn.prefix = "pod".to_owned();
        }
        run.run(results).await?;
        run.name = &many;
        run.population = population(watchers);
        run.run(results).await?;
        run.clean().await;
        results.ratios(SERVER_PER_UPSTREAM_EVENT, 0);
        Ok(())
    }
}
