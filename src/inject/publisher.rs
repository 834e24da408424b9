//! Carries plans out until the drain. Decides nothing.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use super::api::Api;
use super::plan::{Plan, Write};
use super::setup::Setup;
use crate::log_limit::FaultLog;
use crate::shutdown::Drain;

/// A new API server, or a new namespace with a bundle, is known after at most this time. Its few small requests cost an API server less
/// than the watches and the code that would make it sooner, and an API server that is gone is noticed by its clients anyway.
const PERIOD: Duration = Duration::from_secs(10);

/// Publishes until the drain begins.
pub(super) async fn run(api: &Api, namespace: &str, drain: &Drain) {
    let mut faults = FaultLog::default();
    loop {
        let problems = tokio::select! {
            // What is written is written whole, and a later publisher goes on.
            problems = publish(api, namespace) => problems,
            () = drain.begun() => return,
        };
        if problems.is_empty() {
            if faults.end() {
                info!("published everything again");
            }
        } else if faults.is_due(problems.join("; ")) {
            warn!(
                reason = problems.join("; "),
                "cannot publish everything; trying again"
            );
        }
        tokio::select! {
            // Both are cancel-safe: nothing is lost if they are dropped.
            () = sleep(PERIOD) => {}
            () = drain.begun() => return,
        }
    }
}

/// Does once what is to be done; returns what was not possible. A write that fails keeps no other from being tried.
async fn publish(api: &Api, namespace: &str) -> Vec<String> {
    let setup = match Setup::read(api, namespace).await {
        Ok(setup) => setup,
        Err(failure) => return vec![failure.to_string()],
    };
    let Plan {
        writes,
        mut problems,
    } = Plan::of(&setup);
    problems.extend(carry_out(api, &writes).await);
    problems
}

/// Writes; returns what was not possible.
pub(super) async fn carry_out(api: &Api, writes: &[Write]) -> Vec<String> {
    let mut problems = Vec::new();
    for write in writes {
        let (path, written) = match write {
            Write::Patch(path, patch) => (path, api.patch(path, patch).await),
            Write::Create(path, object) => (path, api.create(path, object).await),
        };
        match written {
            Ok(_) => info!(path, "published"),
            Err(failure) => problems.push(failure.to_string()),
        }
    }
    problems
}
