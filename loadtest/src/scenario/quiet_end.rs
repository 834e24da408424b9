//! `quiet-end`: a burst, then nothing, again and again, with objects and bursts of every size: after each, every watch must have everything
//! although no further event pushes it out.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::burst::HEAD_LEN;
use super::population::Population;
use super::watch_run::quiet::{CatchUp, Lag};
use super::watch_run::{ActiveRun, WatchRun, spare};
use crate::cli::players::QuietEnd;
use crate::results::Results;
use crate::writer::shape::Shape;
use crate::writer::{Churn, LANES, Writes};

/// What an event of metadata alone is counted as, at most, bytes.
const METADATA_LEN: usize = 500;
/// What one watcher may get of a burst: the API server and the reference have to take it too, bytes.
const EACH_MAX: usize = 64 << 20;
/// Longest run, whatever the flags multiply to.
const LIMIT: Duration = Duration::from_secs(1_800);

/// A burst of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    writes: usize,
    object_len: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {} B", self.writes, self.object_len)
    }
}

/// What the rounds of a case came to.
#[derive(Debug, Default)]
struct CaseOutcome {
    rounds: usize,
    behind: Vec<Lag>,
    took_ms: Vec<f64>,
}

/// When a run is given up.
pub fn limit(flags: &QuietEnd) -> Duration {
    let rounds = u32::try_from(cases(flags).len() * flags.rounds).unwrap_or(u32::MAX);
    (spare(flags.watching.watchers).saturating_mul(rounds.saturating_add(1))).min(LIMIT)
}

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the results.
pub async fn run(flags: &QuietEnd) -> Result<Results> {
    let cases = cases(flags);
    ensure!(
        !cases.is_empty(),
        "no burst of these sizes fits into --volume-max {} MiB",
        flags.volume_max
    );
    ensure!(
        !(flags.websocket && (flags.watching.http2 || flags.protobuf)),
        "--websocket goes with neither --http2 nor --protobuf"
    );
    let population = Population {
        line_len_max: Some(HEAD_LEN),
        bookmarks: false,
        accept: flags.accept(),
        ..Population::of(flags.watching.watchers)
    };
    let mut run = WatchRun::of("quiet end", &flags.server, population, &flags.watching)?;
    run.swarm_config.websocket = flags.websocket;
    run.churn = Some(Churn {
        target: run.reference.clone(),
        path: run.path.to_owned(),
        prefix: "quiet".to_owned(),
        objects: LANES,
        object_len: cases[0].object_len,
        shape: Shape::ConfigMap,
        rate: 0.0,
        lanes: LANES,
        at_once: true,
        also: None,
    });
    play(flags, &run, &cases).await
}

/// Every size with every burst, as far as what all watchers get of it stays within bounds.
fn cases(flags: &QuietEnd) -> Vec<Case> {
    let volume_max = flags.volume_max << 20;
    let all = flags.sizes.iter().flat_map(|object_len| {
        flags.writes.iter().map(|writes| Case {
            writes: *writes,
            object_len: *object_len,
        })
    });
    let is_short = |case: &Case| case.writes * case.object_len <= EACH_MAX;
    let volume = |case: &Case| {
        let len_max = if flags.metadata {
            METADATA_LEN
        } else {
            usize::MAX
        };
        case.writes * case.object_len.min(len_max) * flags.watching.watchers
    };
    all.filter(|case| case.writes > 0 && is_short(case) && volume(case) <= volume_max)
        .collect()
}

async fn play(flags: &QuietEnd, run: &WatchRun<'_>, cases: &[Case]) -> Result<Results> {
    let mut results = Results::new("quiet-end");
    let mut running = run.begin(&mut results).await?;
    let (mut all, mut outcomes) = (Writes::default(), Vec::new());
    for case in cases {
        let mut outcome = CaseOutcome::default();
        for round in 0..flags.rounds {
            let (written, quiet) = one(&mut running, *case, round).await?;
            quiet.report_slowness(&mut results, &format!("{case}, round {}", round + 1));
            outcome.add(quiet);
            all.add(written);
        }
        outcome.report(&mut results, *case);
        outcomes.push(outcome);
    }
    total(&mut results, &outcomes);
    let left_out = flags.sizes.len() * flags.writes.len() - cases.len();
    results.figure("bursts left out for their volume", left_out as f64);
    let bytes = running.control.bytes.load(Ordering::Relaxed);
    results.figure("MiB delivered", bytes as f64 / f64::from(1 << 20));
    running.finish(&mut results, Some(&all)).await?;
    if let Some(churn) = &run.churn {
        churn.clean().await;
    }
    Ok(results)
}

/// One burst and its end: written one after the other or at once, so that several events wait together, and directly at the API server or
/// through the server under test.
async fn one(running: &mut ActiveRun<'_>, case: Case, round: usize) -> Result<(Writes, CatchUp)> {
    let run = running.run;
    let Some(churn) = &run.churn else {
        anyhow::bail!("invariant: there is a writer")
    };
    let mut churn = churn.clone();
    churn.object_len = case.object_len;
    if round % 2 == 1 {
        (churn.objects, churn.lanes) = (1, 1);
    }
    if round % 4 >= 2 {
        churn.target = run.swarm_config.target.clone();
    }
    let written = churn.burst(case.writes).await;
    ensure!(
        written.failed == 0,
        "a write failed: {:?}",
        written.first_failure
    );
    let quiet = running.quiet(Some(&written)).await?;
    Ok((written, quiet))
}

impl CaseOutcome {
    fn add(&mut self, quiet: CatchUp) {
        self.rounds += 1;
        self.behind.extend(quiet.behind);
        self.took_ms.push(quiet.took_ms());
    }

    fn report(&self, results: &mut Results, case: Case) {
        let name = case.to_string();
        let slowest = self.took_ms.iter().copied().fold(0.0, f64::max);
        results.figure(
            &format!("{name}: last event behind last write, ms, max"),
            slowest,
        );
        if self.behind.is_empty() {
            return;
        }
        let most = |of: fn(&Lag) -> usize| self.behind.iter().map(of).max().unwrap_or(0);
        results.fault(format!(
            "behind at the end: {name}: in {} of {} rounds, up to {} watchers and {} events",
            self.behind.len(),
            self.rounds,
            most(|behind| behind.watchers),
            most(|behind| behind.events),
        ));
    }
}

fn total(results: &mut Results, outcomes: &[CaseOutcome]) {
    let rounds: usize = outcomes.iter().map(|one| one.rounds).sum();
    let behind: usize = outcomes.iter().map(|one| one.behind.len()).sum();
    let mut took: Vec<f64> = outcomes
        .iter()
        .flat_map(|one| one.took_ms.clone())
        .collect();
    took.sort_by(f64::total_cmp);
    let at = |index: usize| took.get(index).copied().unwrap_or(0.0);
    results.figure("rounds", rounds as f64);
    results.figure("rounds with watchers behind", behind as f64);
    results.figure(
        "last event behind last write, ms, median",
        at(took.len() / 2),
    );
    results.figure(
        "last event behind last write, ms, max",
        at(took.len().saturating_sub(1)),
    );
}
