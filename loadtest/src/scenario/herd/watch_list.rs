//! `watch-list-herd`: many clients take their list as a stream of initial events.

use anyhow::Result;
use clap::Parser;
use std::sync::Arc;

use super::HerdFlags;
use crate::client::Client;
use crate::lister::Lister;
use crate::results::Results;
use crate::scenario::Scenario;
use crate::verify::reference::{ObjectVersions, fingerprint};
use crate::wire::list::json_list;

/// Many clients take their list as a stream of initial events at once, several times: every state complete.
#[derive(Debug, Clone, Parser)]
#[command(name = "watch-list-herd")]
pub struct WatchListHerd {
    #[command(flatten)]
    pub herd: HerdFlags,
    /// Streams on each HTTP/2 connection; HTTP/1.1 if not given.
    #[arg(long)]
    pub streams_per_connection: Option<usize>,
}

impl Scenario for WatchListHerd {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let flags = &self.herd;
        let (target, reference, expected) = flags.prepare().await?;
        let mut config = flags.swarm_config(target);
        config.streams_per_connection = self.streams_per_connection;
        let path: Arc<str> = format!(
            "{}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0",
            flags.server.path
        )
        .into();
        let herd = flags
            .play(config, || Lister::streaming(path.clone()))
            .await?;
        herd.report_rounds(results);
        herd.judge(results, flags.clients, expected.items);
        // Nothing is written while herds list.
        let list = Client::new(reference).json(&flags.server.path).await?;
        let print = fingerprint(&ObjectVersions::from_iter(json_list(&list)?.1));
        for (client, lists) in herd.lists.iter().enumerate() {
            for one in lists {
                if one.failure.is_none() && one.digest != print {
                    let (items, version) = (one.items, one.version);
                    let what =
                        format!("its {items} objects at version {version:?} are not the server's");
                    results.fault_of(&format!("client {client}"), &what);
                }
            }
        }
        Ok(())
    }
}
