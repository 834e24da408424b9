//! `stalled`: the same watchers twice, the second time with some that stop reading; do the others notice?

use anyhow::Result;

use super::crowd::Crowd;
use super::tax;
use super::watch_run::WatchRun;
use crate::cli::Stalled;
use crate::sheet::Sheet;
use crate::swarm::pace::{Pace, Slowness};

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the sheet.
pub async fn run(flags: &Stalled) -> Result<Sheet> {
    let Stalled {
        setting,
        stalled,
        receive_buffer,
    } = flags;
    let mut sheet = Sheet::new("stalled");
    let crowd = Crowd {
        apart: *stalled,
        ..Crowd::of(setting.watching.watchers)
    };
    let mut run = WatchRun::churning("all reading", setting, crowd)?;
    let all_reading = run.run(&mut sheet).await?;
    run.name = "some stalled";
    run.crowd.slowness = Some(Slowness {
        pace: Pace::Never,
        receive_buffer: *receive_buffer,
        renews_every: None,
    });
    let some_stalled = run.run(&mut sheet).await?;
    tax::tax(&mut sheet, &all_reading.latency, &some_stalled.latency);
    run.clean(&setting.churning).await;
    Ok(sheet)
}
