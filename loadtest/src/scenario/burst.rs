//! `burst`: no writes, then many at once. How long does it take until the last watcher has the last event?

pub mod big_object;

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser};

use super::Scenario;
use super::population::Population;
use super::watch_run::quiet::Lag;
use super::watch_run::{ActiveRun, WatchRun, spare};
use crate::cli::{ServerFlags, WatchFlags, seconds};
use crate::recorder::now_ns;
use crate::results::{Results, at_share, mib};
use crate::writer::{Churn, Writes};

/// Flags of scenarios that write at once and then wait.
#[derive(Debug, Clone, Args)]
pub struct BurstFlags {
    /// Number of bursts.
    #[arg(long, default_value_t = 5)]
    pub bursts: usize,
    /// Time without writes before each burst, such as 1s.
    #[arg(long, default_value = "1s", value_parser = seconds)]
    pub quiet: Duration,
}

/// No writes, then many at once, several times: how long until the last watcher has the last event?
#[derive(Debug, Clone, Parser)]
#[command(name = "burst")]
pub struct Burst {
    #[command(flatten)]
    pub server: ServerFlags,
    #[command(flatten)]
    pub watching: WatchFlags,
    #[command(flatten)]
    pub bursts: BurstFlags,
    /// Number of objects that are written.
    #[arg(long, default_value_t = 100)]
    pub objects: usize,
    /// Size of an object on the wire, bytes.
    #[arg(long, default_value_t = 1_024)]
    pub object_size: usize,
    /// Writes of one burst.
    #[arg(long, default_value_t = 1_000)]
    pub writes: usize,
    /// Connections of the writer.
    #[arg(long, default_value_t = 16)]
    pub writers: usize,
}

impl Scenario for Burst {
    fn time_limit(&self) -> Duration {
        self.bursts.time_limit(&self.watching)
    }

    async fn run(&self, results: &mut Results) -> Result<()> {
        let population = Population::of(self.watching.watchers);
        let mut run = WatchRun::of("bursts", &self.server, population, &self.watching)?;
        run.churn = Some(Churn {
            objects: self.objects.max(1),
            object_len: self.object_size,
            lanes: self.writers.max(1),
            at_once: true,
            ..Churn::new(&run.reference, run.path, "burst")
        });
        self.bursts.play(&run, self.writes, results).await
    }
}

/// Times of one burst, in seconds since its first write.
struct BurstTimes {
    /// When the last write was answered.
    upstream: f64,
    /// When the last watcher had the last event.
    last_watcher: f64,
    /// MiB that all watchers received.
    mib: f64,
    /// The watchers that lacked events when no more arrived.
    lag: Option<Lag>,
}

impl BurstFlags {
    /// Each burst may wait for its watchers as long as a whole run may.
    fn time_limit(&self, watching: &WatchFlags) -> Duration {
        let count = u32::try_from(self.bursts).unwrap_or(u32::MAX);
        (self.quiet + spare(watching.watchers)) * count.max(1)
    }

    async fn play(&self, run: &WatchRun<'_>, writes: usize, results: &mut Results) -> Result<()> {
        let mut running = run.begin(results).await?;
        let (mut all, mut times) = (Writes::default(), Vec::new());
        let snapshots = {
            let from = running.measure_begin()?;
            for number in 1..=self.bursts {
                tokio::time::sleep(self.quiet).await;
                match one_burst(&mut running, writes, &mut all).await {
                    Ok(one) => {
                        if let Some(lag) = one.lag {
                            results.fault(format!("burst {number}: {lag}"));
                        }
                        times.push(one);
                    }
                    Err(error) => {
                        results.fault(format!("burst {number}: {error:#}"));
                        break;
                    }
                }
            }
            [from, running.measure_end()?]
        };
        run.window(results, &snapshots);
        report(results, &times);
        running.finish(results, Some(&all)).await?;
        run.clean().await;
        Ok(())
    }
}

async fn one_burst(
    running: &mut ActiveRun<'_>,
    writes: usize,
    all: &mut Writes,
) -> Result<BurstTimes> {
    let Some(churn) = &running.run.churn else {
        anyhow::bail!("invariant: a burst has a writer")
    };
    let bytes_before = running.control.bytes.load(Ordering::Relaxed);
    let started = now_ns();
    let written = churn.burst(writes).await;
    let since = |then: u64| then.saturating_sub(started) as f64 / 1e9;
    let upstream = since(now_ns());
    let catch_up = running.quiet(Some(&written)).await?;
    all.add(written);
    let bytes = running.control.bytes.load(Ordering::Relaxed) - bytes_before;
    Ok(BurstTimes {
        upstream,
        last_watcher: since(running.control.last_delivery_ns.load(Ordering::Relaxed)),
        mib: mib(bytes),
        lag: catch_up.lag,
    })
}

fn report(results: &mut Results, times: &[BurstTimes]) {
    let mut row = |name: &str, of: fn(&BurstTimes) -> f64| {
        let mut values: Vec<f64> = times.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        results.figure(&format!("{name}, median"), at_share(&values, 0.5));
        results.figure(&format!("{name}, max"), at_share(&values, 1.0));
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
