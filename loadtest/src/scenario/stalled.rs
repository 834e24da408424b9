//! `stalled`: the same watchers twice, the second time with some that stop reading; do the others notice?

use anyhow::Result;

use super::crowd::Crowd;
use super::watch_run::WatchRun;
use super::watch_run::window::LATENCY_P99;
use crate::cli::Stalled;
use crate::sheet::Sheet;
use crate::swarm::pace::{Pace, Slowness};

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
    let mut sheet = Sheet::new("stalled");
    let crowd = Crowd {
        apart: *stalled,
        ..Crowd::of(watching.watchers)
    };
    let mut run = WatchRun::of("all reading", server, crowd, watching)?.churning(churning);
    run.run(&mut sheet).await?;
    run.name = "some stalled";
    run.crowd.slowness = Some(Slowness {
        pace: Pace::Never,
        receive_buffer: *receive_buffer,
    });
    run.run(&mut sheet).await?;
    run.clean(churning).await;
    if let (Some(a), Some(b)) = (sheet.value(LATENCY_P99, 0), sheet.value(LATENCY_P99, 1)) {
        sheet.note(format!(
            "p99 of the others with {stalled} stalled is {:.2} times the p99 without",
            b / a.max(1e-3)
        ));
    }
    Ok(sheet)
}
