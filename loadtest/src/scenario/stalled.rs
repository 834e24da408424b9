//! `stalled`: the same watchers twice, the second time with some that stop reading; do the others notice?

use anyhow::Result;

use super::steady::churn;
use super::watch_run::{LATENCY_P99, WatchRun};
use super::{connections, targets, wiring};
use crate::cli::Stalled;
use crate::process::raise_open_files;
use crate::sheet::Sheet;

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the sheet.
pub async fn run(flags: &Stalled) -> Result<Sheet> {
    let Stalled {
        server,
        watching,
        churning,
        stalled,
        receive_buffer,
    } = flags;
    raise_open_files(connections(watching))?;
    let (target, reference) = targets(server)?;
    let mut sheet = Sheet::new("stalled");
    let without = WatchRun {
        name: "all reading",
        wiring: wiring(server, Some(watching), target),
        churn: churn(churning, &reference, &server.path),
        reference: reference.clone(),
        path: &server.path,
        watchers: watching.watchers,
        set_apart: *stalled,
        receive_buffer: None,
        warm_up: churning.warm_up,
        duration: churning.duration,
        server_pid: server.server_pid,
        upstream_pid: server.upstream_pid,
    };
    without.run(&mut sheet).await?;
    let with = WatchRun {
        name: "some stalled",
        wiring: without.wiring.clone(),
        churn: without.churn.clone(),
        reference,
        receive_buffer: Some(*receive_buffer),
        ..without
    };
    with.run(&mut sheet).await?;
    if let Some(churn) = with.churn.as_ref().filter(|_| !churning.keep_objects) {
        churn.clean().await;
    }
    if let (Some(a), Some(b)) = (sheet.value(LATENCY_P99, 0), sheet.value(LATENCY_P99, 1)) {
        sheet.note(format!(
            "p99 of the others with {stalled} stalled is {:.2} times the p99 without",
            b / a.max(1e-3)
        ));
    }
    Ok(sheet)
}
