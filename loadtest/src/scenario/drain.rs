//! `drain`: a gateway with a mixed crowd is asked to end, while objects change. Every stream must end in order and between two events, with
//! all events up to there; lists that are under way must come whole; who comes new must be turned away; and the gateway must be gone in time.

mod client;
mod collection;
mod crowd;
pub mod gateway;
mod knocks;
mod verdict;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::targets;
use super::watch_run::ready_wait;
use crate::cli::players::Drain;
use crate::client::Client;
use crate::process::raise_open_files;
use crate::recorder::now_ns;
use crate::sheet::Sheet;
use collection::Collections;
use crowd::{Crowd, Who};
use gateway::{Gateway, Process};
use knocks::Knocks;
use verdict::Course;

/// How often it is looked how far they are.
const LOOK: Duration = Duration::from_millis(5);
/// New connections that are tried while the gateway waits for its last clients.
const LATE_KNOCKS: usize = 5;
/// What may come after the time-out: the log's last lines, the system's cleaning up, a machine that is busy.
const SPARE: Duration = Duration::from_secs(5);
/// Time for the reference to see the last write.
const SETTLE_WAIT: Duration = Duration::from_secs(10);

/// When a run is given up.
pub fn limit(flags: &Drain) -> Duration {
    let clients = flags.watchers + flags.listers;
    let end = flags.drain_timeout + SPARE * 2 + SETTLE_WAIT * 3;
    ready_wait(clients) * 2 + flags.churning.warm_up + flags.churning.duration + end
}

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the gateway are in the sheet.
pub async fn run(flags: &Drain) -> Result<Sheet> {
    let pid = flags.server.server_pid;
    let pid = pid.context("drain needs --server-pid: what is to end")?;
    play(flags, &Process(pid)).await
}

/// Plays it with a gateway that is asked to end, and has ended, as it says.
///
/// # Errors
/// As [`run`].
pub async fn play(flags: &Drain, gateway: &impl Gateway) -> Result<Sheet> {
    raise_open_files(flags.watchers + flags.listers)?;
    let (target, reference) = targets(&flags.server)?;
    // A list through the gateway makes its cache, so that the reference's version is within its history.
    let first = format!("{}?resourceVersion=0&limit=1", flags.server.path);
    Client::new(target.clone()).json(&first).await?;
    let mut collections = Collections::begin(flags, &reference).await?;
    let begun = Instant::now();
    let crowd = Crowd::begin(flags, &target, &collections).await?;
    let mut sheet = Sheet::new("drain");
    sheet.column("drain");
    sheet.figure("all there after, s", begun.elapsed().as_secs_f64());
    let writing = collections.write();
    tokio::time::sleep(flags.churning.warm_up + flags.churning.duration).await;

    let knocks = Knocks::new(target, format!("{}?limit=1", flags.server.path));
    let course = end(flags, gateway, &crowd, &knocks).await?;
    let written = writing.finish().await;
    course.report(&mut sheet, flags.drain_timeout);
    knocks.finish().report(&mut sheet);
    let finished = crowd.finish()?;
    let seen = finished.furthest();
    collections.settle(&written, seen, &mut sheet).await;
    written.report(&collections, &mut sheet);
    finished.report(course.asked_ns, &collections, &mut sheet);
    collections.clean(&flags.churning).await;
    Ok(sheet)
}

/// Asks the gateway to end, and watches until it has or its time is over. Those who are slow read on when the others are gone and some have
/// knocked in vain.
async fn end(
    flags: &Drain,
    gateway: &impl Gateway,
    crowd: &Crowd,
    knocks: &Knocks,
) -> Result<Course> {
    let held = crowd.bytes(Who::Slow);
    let (asked_at, asked_ns) = (Instant::now(), now_ns());
    gateway.terminate()?;
    knocks.begin();
    let deadline = asked_at + flags.drain_timeout + SPARE;
    // The slow need their time too.
    let half = asked_at + flags.drain_timeout / 2;
    until(half, || crowd.is_over(Who::Prompt)).await;
    let prompt_after = asked_at.elapsed();
    let before = knocks.be_late();
    until(half, || knocks.count() >= before + LATE_KNOCKS).await;
    crowd.wake();
    until(deadline, || crowd.is_over(Who::All)).await;
    let all_after = asked_at.elapsed();
    until(deadline, || gateway.has_ended()).await;
    let ended_after = gateway.has_ended().then(|| asked_at.elapsed());
    knocks.stop();
    if ended_after.is_some() {
        // What the end of a process closes is still to be read.
        until(Instant::now() + SPARE, || crowd.is_over(Who::All)).await;
    }
    Ok(Course {
        asked_ns,
        prompt_after,
        all_after,
        ended_after,
        held_bytes: crowd.bytes(Who::Slow) - held,
    })
}

/// Waits until something is so, or it is so late.
async fn until(deadline: Instant, is_so: impl Fn() -> bool) {
    while !is_so() && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
}
