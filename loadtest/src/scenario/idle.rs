//! `idle-memory`: what a watch costs the server while nothing happens.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};

use super::crew::{Crew, Staffing};
use super::crowd::Crowd;
use super::watch_run::ready_wait;
use super::{connections, targets, wiring};
use crate::cli::Idle;
use crate::client::{Client, list_version};
use crate::process::{Usage, raise_open_files};
use crate::recorder::Control;
use crate::sheet::Sheet;

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
    let crowd = Crowd::of(watching.watchers);
    let start = list_version(&list)?;
    let plans = crowd.plans(&server.path, start);
    let wiring = wiring(server, Some(watching), target);
    let staffing = Staffing {
        server,
        wiring: &wiring,
        crowd: &crowd,
        processes: watching.processes,
        path: &server.path,
        start,
    };
    let begun = Instant::now();
    let control = Arc::new(Control::default());
    let crew = Crew::start(&staffing, &plans, &Arc::default(), control).await?;
    crew.ready(ready_wait(watching.watchers)).await?;
    let ready_after = begun.elapsed();
    let connected = Usage::of(pid)?;
    tokio::time::sleep(*settle).await;
    let after = Usage::of(pid)?;
    let recorder = crew.finish().await?.recorder;
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
            recorder.ends,
            recorder.messages.lines().collect::<Vec<_>>()
        ));
    }
    Ok(sheet)
}
