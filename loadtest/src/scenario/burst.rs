//! `burst`: nothing, then many writes at once; how long until the last watcher has the last event? `big-object` is a burst of one write
//! of one long object.

use std::sync::atomic::Ordering;

use anyhow::Result;

use super::population::Population;
use super::watch_run::quiet::Lag;
use super::watch_run::{ActiveRun, WatchRun};
use crate::cli::players::{BigObject, Burst, BurstFlags};
use crate::recorder::now_ns;
use crate::results::Results;
use crate::writer::shape::Shape;
use crate::writer::{Churn, Writes};

/// Beginning of a long event that holds all that is looked at: what stands before an object's data.
pub const HEAD_LEN: usize = 4_096;

/// Runs `burst`.
///
/// # Errors
/// If it could not be run; faults of the server are in the results.
pub async fn run(flags: &Burst) -> Result<Results> {
    let population = Population::of(flags.watching.watchers);
    let mut run = WatchRun::of("bursts", &flags.server, population, &flags.watching)?;
    run.churn = Some(Churn {
        objects: flags.objects.max(1),
        object_len: flags.object_size,
        lanes: flags.writers.max(1),
        ..writer(&run)
    });
    play("burst", &run, flags.writes, &flags.bursts).await
}

/// Runs `big-object`.
///
/// # Errors
/// As [`run`].
pub async fn run_big_object(flags: &BigObject) -> Result<Results> {
    let population = Population {
        line_len_max: Some(HEAD_LEN),
        ..Population::of(flags.watching.watchers)
    };
    let mut run = WatchRun::of("big object", &flags.server, population, &flags.watching)?;
    run.churn = Some(Churn {
        object_len: flags.object_size,
        ..writer(&run)
    });
    play("big-object", &run, 1, &flags.bursts).await
}

/// A writer of one small object.
fn writer(run: &WatchRun<'_>) -> Churn {
    Churn {
        target: run.reference.clone(),
        path: run.path.to_owned(),
        prefix: "burst".to_owned(),
        objects: 1,
        object_len: 0,
        shape: Shape::ConfigMap,
        rate: 0.0,
        lanes: 1,
        at_once: true,
        also: None,
    }
}

/// What one burst took, in seconds since its first write.
struct BurstTimes {
    upstream: f64,
    last_watcher: f64,
    /// MiB that all watchers got.
    mib: f64,
    /// Who lacked something when nothing more came.
    behind: Option<Lag>,
}

async fn play(
    title: &str,
    run: &WatchRun<'_>,
    writes: usize,
    bursts: &BurstFlags,
) -> Result<Results> {
    let mut results = Results::new(title);
    let mut running = run.begin(&mut results).await?;
    let (mut all, mut took) = (Writes::default(), Vec::new());
    let edges = {
        let from = running.measure_begin()?;
        for number in 0..bursts.bursts {
            tokio::time::sleep(bursts.quiet).await;
            match one(&mut running, writes, &mut all).await {
                Ok(one) => {
                    if let Some(behind) = one.behind {
                        results.fault(format!("burst {}: {behind}", number + 1));
                    }
                    took.push(one);
                }
                Err(error) => {
                    results.fault(format!("burst {}: {error:#}", number + 1));
                    break;
                }
            }
        }
        [from, running.measure_end()?]
    };
    run.window(&mut results, &edges);
    report(&mut results, &took);
    running.finish(&mut results, Some(&all)).await?;
    if let Some(churn) = run.churn.as_ref().filter(|_| !bursts.keep_objects) {
        churn.clean().await;
    }
    Ok(results)
}

async fn one(running: &mut ActiveRun<'_>, writes: usize, all: &mut Writes) -> Result<BurstTimes> {
    let Some(churn) = &running.run.churn else {
        anyhow::bail!("invariant: a burst has a writer")
    };
    let bytes_before = running.control.bytes.load(Ordering::Relaxed);
    let begun = now_ns();
    let written = churn.burst(writes).await;
    let since = |then: u64| then.saturating_sub(begun) as f64 / 1e9;
    let upstream = since(now_ns());
    let quiet = running.quiet(Some(&written)).await?;
    all.add(written);
    let bytes = running.control.bytes.load(Ordering::Relaxed) - bytes_before;
    Ok(BurstTimes {
        upstream,
        last_watcher: since(running.control.last_delivery_ns.load(Ordering::Relaxed)),
        mib: bytes as f64 / f64::from(1 << 20),
        behind: quiet.behind,
    })
}

fn report(results: &mut Results, took: &[BurstTimes]) {
    let mut row = |name: &str, of: fn(&BurstTimes) -> f64| {
        let mut values: Vec<f64> = took.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let value = |at: usize| values.get(at).copied().unwrap_or(0.0);
        results.figure(&format!("{name}, median"), value(values.len() / 2));
        results.figure(
            &format!("{name}, max"),
            value(values.len().saturating_sub(1)),
        );
    };
    row("last write answered after, ms", |one| one.upstream * 1e3);
    row("last watcher has last event after, ms", |one| {
        one.last_watcher * 1e3
    });
    row("last watcher behind last write, ms", |one| {
        (one.last_watcher - one.upstream).max(0.0) * 1e3
    });
    row("MiB a second until the last watcher has all", |one| {
        one.mib / one.last_watcher.max(1e-9)
    });
}
