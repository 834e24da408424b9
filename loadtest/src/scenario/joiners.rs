//! `joiners`: clients that come and go while objects churn: they list and watch, watch on from where they left, or from the version
//! that the run began with. At the end all stay, and each must hold what the server holds.

use anyhow::Result;

use super::crowd::Crowd;
use super::watch_run::WatchRun;
use crate::cli::players::Joiners;
use crate::sheet::Sheet;

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the sheet.
pub async fn run(flags: &Joiners) -> Result<Sheet> {
    let Joiners { setting } = flags;
    let mut sheet = Sheet::new("joiners");
    let crowd = Crowd {
        visits: true,
        ..Crowd::of(setting.watching.watchers)
    };
    let run = WatchRun::churning("joiners", setting, crowd)?;
    run.run(&mut sheet).await?;
    run.clean(&setting.churning).await;
    Ok(sheet)
}
