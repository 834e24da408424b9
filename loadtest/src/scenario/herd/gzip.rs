//! `gzip-herd`: the same lists plain and then compressed. What does the first compressed list cost, and what do later ones?

use anyhow::{Result, ensure};
use clap::Parser;

use super::{HerdFlags, HerdResults};
use crate::lister::Lister;
use crate::results::Results;
use crate::scenario::Scenario;

/// Many clients list at once, plain and with gzip: what the first compressed lists cost, and the later ones.
#[derive(Debug, Clone, Parser)]
#[command(name = "gzip-herd")]
pub struct GzipHerd {
    #[command(flatten)]
    pub herd: HerdFlags,
}

impl Scenario for GzipHerd {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let flags = &self.herd;
        ensure!(
            flags.rounds >= 2,
            "--rounds: at least 2, because the first round is reported apart"
        );
        let (target, _, expected) = flags.prepare().await?;
        let path = flags.list_path();
        let config = flags.swarm_config(target.clone());
        let plain = flags.play(config, || Lister::new(path.clone())).await?;
        let config = flags.swarm_config(target.compressing());
        let compressed = flags.play(config, || Lister::gzip(path.clone())).await?;
        results.column("plain");
        plain.report(results, 2..=flags.rounds);
        results.column("gzip, first");
        compressed.report(results, 1..=1);
        results.column("gzip, later");
        compressed.report(results, 2..=flags.rounds);
        plain.judge(results, flags.clients, expected.items);
        compressed.judge(results, flags.clients, expected.items);
        // Nothing is written in between, so both must be the same list.
        let sample = |herd: &HerdResults| {
            let lists = herd.lists.first().and_then(|all| all.first());
            lists.map(|one| (one.version, one.bytes, one.digest))
        };
        if sample(&plain) != sample(&compressed) {
            results.fault("the compressed list differs from the plain one".to_owned());
        }
        Ok(())
    }
}
