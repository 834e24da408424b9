//! `idle-memory`: what a watch costs the server while nothing happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{connections, targets, wiring};
use crate::cli::Idle;
use crate::client::{Client, list_version};
use crate::process::{Usage, raise_open_files};
use crate::recorder::Control;
use crate::sheet::Sheet;
use crate::swarm::Swarm;
use crate::verify::reference::State;
use crate::watcher::{Habit, Plan, Watcher};

/// Time for connecting and the first responses.
const READY_WAIT: Duration = Duration::from_secs(45);

/// Runs the scenario.
///
/// # Errors
/// If it could not be run.
pub async fn run(flags: &Idle) -> Result<Sheet> {
    let Idle {
        server,
        watching,
        settle,
    } = flags;
    let pid = server
        .server_pid
        .context("idle-memory needs --server-pid")?;
    raise_open_files(connections(watching))?;
    let (target, reference) = targets(server)?;
    let list = Client::new(reference)
        .json(&format!("{}?limit=1", server.path))
        .await?;
    // The list through the server under test makes its cache before memory is read.
    Client::new(target.clone())
        .json(&format!("{}?resourceVersion=0&limit=1", server.path))
        .await?;
    tokio::time::sleep(*settle).await;
    let before = Usage::of(pid)?;
    let plan = Arc::new(Plan {
        path: server.path.clone(),
        start: list_version(&list)?,
        timeout_s: 3_600,
    });
    let watchers = (0..watching.watchers)
        .map(|_| Watcher::new(plan.clone(), Habit::Reads, &State::new()))
        .collect();
    let swarm = Swarm::start(
        watchers,
        &wiring(server, Some(watching), target),
        Arc::new(Control::default()),
    )?;
    let begun = Instant::now();
    swarm.ready(READY_WAIT).await?;
    let ready_after = begun.elapsed();
    let connected = Usage::of(pid)?;
    tokio::time::sleep(*settle).await;
    let after = Usage::of(pid)?;
    let (_, recorder) = swarm.finish()?;
    let mut sheet = Sheet::new("idle-memory");
    sheet.column("target");
    sheet.figure("watchers", watching.watchers as f64);
    sheet.figure("all watching after, s", ready_after.as_secs_f64());
    sheet.figure(
        "server RSS before, MiB",
        before.rss as f64 / f64::from(1 << 20),
    );
    sheet.figure(
        "server RSS after, MiB",
        after.rss as f64 / f64::from(1 << 20),
    );
    let per_watch =
        |rss: u64| (rss as f64 - before.rss as f64) / 1024.0 / watching.watchers.max(1) as f64;
    sheet.figure("KiB per watch, just connected", per_watch(connected.rss));
    sheet.figure("KiB per watch, settled", per_watch(after.rss));
    sheet.figure(
        "CPU to open a watch, µs",
        connected.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6
            / watching.watchers.max(1) as f64,
    );
    if !recorder.ends.is_empty() {
        sheet.fault(format!(
            "streams ended: {:?} {:?}",
            recorder.ends, recorder.messages
        ));
    }
    Ok(sheet)
}
