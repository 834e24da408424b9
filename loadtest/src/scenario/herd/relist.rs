//! `relist-herd`: many clients list at once.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use super::HerdFlags;
use crate::results::Results;
use crate::scenario::Scenario;

/// Many clients list at once, several times: every body complete.
#[derive(Debug, Clone, Parser)]
#[command(name = "relist-herd")]
pub struct RelistHerd {
    #[command(flatten)]
    pub herd: HerdFlags,
}

impl Scenario for RelistHerd {
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
