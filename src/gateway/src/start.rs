//! What the gateway waits for when it starts.

use std::time::Duration;

use tracing::warn;

use super::registry::Registry;
use crate::config::OpenFiles;
use crate::error_chain::one_line;
use crate::upstream::client::Client;
use crate::upstream::discovery::{Discovery, discover};

/// How long the start waits for discovery. Then the ports open without it, because a liveness probe that finds no open port would restart
/// a gateway that only waits for upstream.
pub(super) const START_WAIT: Duration = Duration::from_secs(5);

/// Divides the process's open files for this many client connections; logs if the limit is too low for them.
pub(super) fn open_files(clients_max: usize) -> OpenFiles {
    let files = OpenFiles::of_process(clients_max);
    if files.clients < clients_max {
        let allowed = files.clients;
        warn!(
            allowed,
            "the limit of open files is too low for --connections-max"
        );
    }
    files
}

/// Reads what decides which resources are cached and how, as far as upstream answers in time.
pub(super) async fn learn_at_start(registry: &Registry, is_answering: bool) {
    if is_answering {
        // If this times out, the gates are read together with discovery later.
        let _ = tokio::time::timeout(START_WAIT, registry.learn_gates()).await;
    }
    registry.learn_api_services(START_WAIT).await;
}

/// Reads discovery, with a timeout. The error is one line for `/readyz`.
pub(super) async fn discovered_at_start(client: &Client) -> Result<Discovery, String> {
    match tokio::time::timeout(START_WAIT, discover(client)).await {
        Ok(Ok(discovery)) => Ok(discovery),
        Ok(Err(error)) => {
            let causes = one_line(&error);
            warn!(
                error = causes,
                "cannot read discovery from the API server; retrying"
            );
            Err(error.reason())
        }
        Err(_) => {
            warn!("the API server has not answered discovery in time; retrying");
            Err("the API server did not answer in time".to_owned())
        }
    }
}
