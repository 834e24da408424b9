//! `big-object`: bursts of one write of one long object.

use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use super::BurstFlags;
use crate::cli::{ServerFlags, WatchFlags};
use crate::results::Results;
use crate::scenario::Scenario;
use crate::scenario::population::Population;
use crate::scenario::watch_run::WatchRun;
use crate::writer::Churn;

/// Length of a long event's beginning that holds every field that watchers read: they stand before the object's data.
pub const HEAD_LEN: usize = 4_096;

/// One long object changes, and all watchers receive it.
#[derive(Debug, Clone, Parser)]
#[command(name = "big-object")]
pub struct BigObject {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub watching: WatchFlags,
    #[command(flatten)]
    pub bursts: BurstFlags,
    /// Size of the object on the wire, bytes.
    #[arg(long, default_value_t = 680 * 1_024)]
    pub object_size: usize,
}

impl Scenario for BigObject {
    fn time_limit(&self) -> Duration {
        self.bursts.time_limit(&self.watching)
    }

    async fn run(&self, results: &mut Results) -> Result<()> {
        let population = Population {
            line_len_max: Some(HEAD_LEN),
            ..Population::of(self.watching.watchers)
        };
        let mut run = WatchRun::of("big object", &self.server, population, &self.watching)?;
        run.churn = Some(Churn {
            object_len: self.object_size,
            lanes: 1,
            at_once: true,
            ..Churn::new(&run.reference, run.path, "burst")
        });
        self.bursts.play(&run, 1, results).await
    }
}
