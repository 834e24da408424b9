//! `big-lists`: few clients, and lists of a gigabyte.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use super::HerdFlags;
use crate::results::Results;
use crate::scenario::Scenario;

/// A few clients list a gigabyte at once.
#[derive(Debug, Clone, Parser)]
#[command(name = "big-lists")]
#[command(mut_arg("clients", |arg| arg.default_value("4")))]
#[command(mut_arg("object_size", |arg| arg.default_value("102400")))]
#[command(mut_arg("round_wait", |arg| arg.default_value("120s")))]
pub struct BigLists {
    #[command(flatten)]
    pub herd: HerdFlags,
}

impl Scenario for BigLists {
    fn json(&self) -> Option<&Path> {
        self.herd.server.json()
    }

    fn time_limit(&self) -> Duration {
        self.herd.time_limit()
    }

    async fn run(&self, results: &mut Results) -> Result<()> {
        self.herd.play_lists(results).await
    }
}
