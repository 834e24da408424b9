//! `quiet-end`: a burst, then no writes, again and again, with objects and bursts of every size. After each burst every watch must have
//! everything, although no further event pushes it out.

use anyhow::{Result, ensure};
use clap::Parser;
use std::fmt;
use std::sync::atomic::Ordering;

use super::Scenario;
use super::population::Population;
use super::watch_run::quiet::{CatchUp, Lag};
use super::watch_run::{ActiveRun, WatchRun};
use crate::cli::{ServerFlags, WatchFlags};
use crate::results::{Results, at_share, mib};
use crate::swarm::Accept;
use crate::writer::{Churn, LANES, Writes};

/// Length of a long event's beginning that holds every field that watchers read: they stand before the object's data.
const HEAD_LEN: usize = 4_096;
/// Assumed length of an event with metadata only, at most, bytes.
const METADATA_LEN: usize = 500;
/// Longest burst to one watcher, bytes. The API server and the reference have to carry it too.
const BURST_LEN_MAX: usize = 64 << 20;

/// The size of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    writes: usize,
    /// Size of an object on the wire, bytes.
    object_len: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {} B", self.writes, self.object_len)
    }
}

/// Results of the rounds of a case.
#[derive(Debug, Default)]
struct CaseOutcome {
    rounds: usize,
    /// One for each round after which watchers were behind.
    lags: Vec<Lag>,
    /// For each round, the time from the response to the last write to the arrival of the last event.
    took_ms: Vec<f64>,
}

/// A burst, then no writes, with objects and bursts of every size: every watcher must receive everything although no more events follow.
#[derive(Debug, Clone, Parser)]
#[command(name = "quiet-end")]
#[command(mut_arg("watchers", |arg| arg.default_value("200")))]
pub struct QuietEnd {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub watching: WatchFlags,
    /// Bursts of each size. They alternate between writes at the same time and writes one after the other; two at the API server are
    /// followed by two through the server under test.
    #[arg(long, default_value_t = 4)]
    pub rounds: usize,
    /// Numbers of writes in a burst.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 20, 200])]
    pub writes: Vec<usize>,
    /// Sizes of the object on the wire, bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 20_000, 70_000, 1 << 20])]
    pub sizes: Vec<usize>,
    /// Limit for one burst to all watchers together, MiB. Larger bursts are left out, and bursts of more than 64 MiB to one watcher.
    #[arg(long, default_value_t = 512)]
    pub volume_max: usize,
    /// Watch over WebSockets.
    #[arg(long)]
    pub websocket: bool,
    /// Ask for the metadata of objects only.
    #[arg(long)]
    pub metadata: bool,
    /// Ask for objects in protobuf.
    #[arg(long, conflicts_with = "metadata")]
    pub protobuf: bool,
}

impl Scenario for QuietEnd {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let cases = cases(self);
        ensure!(
            !cases.is_empty(),
            "no burst of these sizes fits into {} MiB for one watcher and --volume-max {} MiB for all",
            BURST_LEN_MAX >> 20,
            self.volume_max
        );
        ensure!(
            !(self.websocket && (self.watching.http2 || self.protobuf)),
            "--websocket cannot be combined with --http2 or --protobuf"
        );
        let population = Population {
            line_len_max: Some(HEAD_LEN),
            bookmarks: false,
            accept: self.accept(),
            ..Population::of(self.watching.watchers)
        };
        let mut run = WatchRun::of("quiet end", &self.server, population, &self.watching)?;
        run.swarm_config.websocket = self.websocket;
        run.churn = Some(Churn {
            objects: LANES,
            object_len: cases[0].object_len,
            ..Churn::new(&run.reference, run.path, "quiet")
        });
        play_cases(self, &run, &cases, results).await
    }
}

impl QuietEnd {
    /// The media type that the watchers ask for.
    const fn accept(&self) -> Accept {
        match (self.metadata, self.protobuf) {
            (true, _) => Accept::Metadata,
            (false, true) => Accept::Protobuf,
            (false, false) => Accept::Json,
        }
    }
}

/// All combinations of sizes and bursts within the limits.
fn cases(flags: &QuietEnd) -> Vec<Case> {
    let volume_max = flags.volume_max << 20;
    let all = flags.sizes.iter().flat_map(|object_len| {
        flags.writes.iter().map(|writes| Case {
            writes: *writes,
            object_len: *object_len,
        })
    });
    let is_short = |case: &Case| case.writes * case.object_len <= BURST_LEN_MAX;
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

async fn play_cases(
    flags: &QuietEnd,
    run: &WatchRun<'_>,
    cases: &[Case],
    results: &mut Results,
) -> Result<()> {
    let mut running = run.begin(results).await?;
    let (mut all, mut outcomes) = (Writes::default(), Vec::new());
    'cases: for case in cases {
        let mut outcome = CaseOutcome::default();
        for round in 0..flags.rounds {
            let name = format!("{case}, round {}", round + 1);
            match play_round(&mut running, *case, round).await {
                Ok((written, catch_up)) => {
                    catch_up.report_slowness(results, &name);
                    outcome.add(catch_up);
                    all.add(written);
                }
                // The figures so far, and the verdict about all watchers, are worth having.
                Err(error) => {
                    results.fault(format!("{name}: {error:#}"));
                    break 'cases;
                }
            }
        }
        outcome.report(results, *case);
        outcomes.push(outcome);
    }
    report_total(results, &outcomes);
    let left_out = flags.sizes.len() * flags.writes.len() - cases.len();
    results.figure("bursts left out for their volume", left_out as f64);
    let bytes = running.control.bytes.load(Ordering::Relaxed);
    results.figure("MiB delivered", mib(bytes));
    running.finish(results, Some(&all)).await?;
    run.clean().await;
    Ok(())
}

/// Writes one burst, and waits until all watchers have it or nothing more arrives. In even rounds the writes are made at the same time, so
/// that several events are pending together; the second two of four rounds write through the server under test.
async fn play_round(
    running: &mut ActiveRun<'_>,
    case: Case,
    round: usize,
) -> Result<(Writes, CatchUp)> {
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
    let catch_up = running.quiet(Some(&written)).await?;
    Ok((written, catch_up))
}

impl CaseOutcome {
    fn add(&mut self, catch_up: CatchUp) {
        self.rounds += 1;
        self.lags.extend(catch_up.lag);
        self.took_ms.push(catch_up.duration_ms());
    }

    fn report(&self, results: &mut Results, case: Case) {
        let name = case.to_string();
        let slowest = self.took_ms.iter().copied().fold(0.0, f64::max);
        results.figure(
            &format!("{name}: last event behind last write, ms, max"),
            slowest,
        );
        if self.lags.is_empty() {
            return;
        }
        let most = |of: fn(&Lag) -> usize| self.lags.iter().map(of).max().unwrap_or(0);
        results.fault(format!(
            "behind at the end: {name}: in {} of {} rounds, up to {} watchers and {} events",
            self.lags.len(),
            self.rounds,
            most(|lag| lag.watchers),
            most(|lag| lag.events),
        ));
    }
}

fn report_total(results: &mut Results, outcomes: &[CaseOutcome]) {
    let rounds: usize = outcomes.iter().map(|outcome| outcome.rounds).sum();
    let behind: usize = outcomes.iter().map(|outcome| outcome.lags.len()).sum();
    let mut times: Vec<f64> = outcomes
        .iter()
        .flat_map(|outcome| outcome.took_ms.clone())
        .collect();
    times.sort_by(f64::total_cmp);
    results.figure("rounds", rounds as f64);
    results.figure("rounds with watchers behind", behind as f64);
    results.figure(
        "last event behind last write, ms, median",
        at_share(&times, 0.5),
    );
    results.figure(
        "last event behind last write, ms, max",
        at_share(&times, 1.0),
    );
}
