//! Compares client-go's informers, kube-rs's reflector and this project's informer on the same pods under the same churn. They run one
//! after the other, with CPU and memory measured, then those of one form together. Each store must equal the server's state.

mod child;
pub mod crowd;
pub mod follow;
mod rows;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser};

use crate::cli::seconds;
use crate::command::{Subcommand, block_on};
use crate::pods::{Fleet, PodChurn, StoreDigest, seed as seed_pods, server_digest};
use crate::results::{self, Results};
use crate::runner::machine;
use crate::socket_loop::RATE_MET;
use crate::target::Target;
use child::{Informer, InformerStatus};
use rows::{Form, InformerRow, ROWS};

/// Seeding is aborted after this time.
const SEED_WAIT: Duration = Duration::from_secs(1_200);
/// Time for one row besides churn and rest.
const ROW_WAIT: Duration = Duration::from_secs(240);
/// How long an informer may lag behind the last write.
const LAG_WAIT: Duration = Duration::from_secs(30);

/// Share of the available memory for informers that run together; the API server grows meanwhile.
const MEMORY_SHARE: f64 = 0.7;

const MIB: f64 = 1024.0 * 1024.0;
const SYNC_CPU: &str = "CPU until synced, s";
const SYNC_PEAK: &str = "peak memory until synced, MiB";
const REST: &str = "memory at rest after sync, MiB";
const CHURN_CPU: &str = "CPU per 1,000 changes, ms";
const CHURN_PEAK: &str = "peak memory, MiB";
const CHURN_REST: &str = "memory at rest after churn, MiB";
/// Figures that are divided by those of the first column.
const COMPARED: [&str; 6] = [SYNC_CPU, SYNC_PEAK, REST, CHURN_CPU, CHURN_PEAK, CHURN_REST];

/// The server of the pods, and their number.
#[derive(Debug, Clone, Args)]
pub struct PodFlags {
    /// API server, such as https://127.0.0.1:6443; HTTP/2.
    #[arg(long)]
    pub target: String,
    /// Bearer token, or @FILE.
    #[arg(long, env = "LOADTEST_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// CA certificates for https, PEM.
    #[arg(long)]
    pub ca: Option<PathBuf>,
    #[command(flatten)]
    pub fleet: Fleet,
}

/// Compares client-go's informers, kube-rs's reflector and this project's informer on the same pods: equal stores, sync time, CPU, memory.
#[derive(Debug, Clone, Parser)]
#[command(name = "compare")]
pub struct Compare {
    #[command(flatten)]
    pub written: PodFlags,
    /// Credentials and address for the informers.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// The client-go program (tests/real/apiserver/informer).
    #[arg(long)]
    pub client_go: PathBuf,
    /// Only rows whose form and name contain one of these, such as typed/,metadata/ours.
    #[arg(long, value_delimiter = ',')]
    pub rows: Vec<String>,
    /// Changes of pods a second.
    #[arg(long, default_value_t = 200.0)]
    pub rate: f64,
    /// For how long pods are changed, such as 20s.
    #[arg(long, default_value = "20s", value_parser = seconds)]
    pub churn: Duration,
    /// How long an informer is idle before its memory is read, such as 5s.
    #[arg(long, default_value = "5s", value_parser = seconds)]
    pub settle: Duration,
    /// Leave out the runs in which informers of one form run together.
    #[arg(long)]
    pub apart_only: bool,
    /// Also write the figures to this file.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

impl Subcommand for Compare {
    fn execute(&self) -> Result<bool> {
        let rows = u32::try_from(ROWS.len()).unwrap_or(u32::MAX);
        let limit = SEED_WAIT + (self.churn + self.settle * 2 + ROW_WAIT) * (rows + 4);
        let all = block_on(within(limit, compare_all(self)))?;
        results::publish(&all, self.json.as_deref())
    }
}

/// Creates the pods for the comparison.
#[derive(Debug, Clone, Parser)]
#[command(name = "seed-pods")]
pub struct SeedPods {
    #[command(flatten)]
    pub written: PodFlags,
}

impl Subcommand for SeedPods {
    fn execute(&self) -> Result<bool> {
        let all = [block_on(within(SEED_WAIT, seed(self)))?];
        results::publish(&all, None)
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = tokio::time::timeout(limit, work).await;
    done.with_context(|| format!("not finished after {limit:?}"))?
}

async fn seed(flags: &SeedPods) -> Result<Results> {
    let target = target(&flags.written)?;
    let seeded = seed_pods(&target, flags.written.fleet).await?;
    let mut results = Results::new("seed-pods");
    results.column("pods");
    results.figure("made", seeded.made as f64);
    results.figure("seconds", seeded.duration.as_secs_f64());
    results.figure(
        "per second",
        seeded.made as f64 / seeded.duration.as_secs_f64(),
    );
    results.figure("length of one, bytes", seeded.pod_len as f64);
    Ok(results)
}

/// Measures every row by itself, then the rows of each form together; stores that differ are faults in the results.
async fn compare_all(flags: &Compare) -> Result<Vec<Results>> {
    let target = target(&flags.written)?;
    let mut scene = InformersRun {
        flags,
        churn: PodChurn {
            fleet: flags.written.fleet,
            rate: flags.rate,
            duration: flags.churn,
        },
        turn: 0,
        before: server_digest(&target).await?,
        target,
    };
    let mut all_results = Vec::new();
    let mut at_once = Results::new("informers, at once");
    for form in Form::ALL {
        let mut results = Results::new(format!("informers, {}", form.title()));
        let mut measured = Vec::new();
        let wanted = ROWS.iter().filter(|row| row.form == form);
        for row in wanted.filter(|row| row.is_selected(flags)) {
            let load = machine::load();
            eprintln!("{} (load {load})", row.id());
            let peak = scene.measure(row, &mut results).await?;
            results.note(format!(
                "{}: the machine's load was {load} at its start",
                row.name
            ));
            measured.push((row, peak));
        }
        if measured.is_empty() {
            continue;
        }
        if measured.len() > 1 && measured[0].0.collects() {
            COMPARED.iter().for_each(|name| results.ratios(name));
        }
        all_results.push(results);
        if !flags.apart_only {
            eprintln!("{}, at once (load {})", form.title(), machine::load());
            at_once.column(form.word());
            scene.together(measured, &mut at_once).await?;
        }
    }
    if !flags.apart_only {
        all_results.push(at_once);
    }
    Ok(all_results)
}

struct InformersRun<'a> {
    flags: &'a Compare,
    target: Target,
    churn: PodChurn,
    turn: usize,
    /// The server's state; nothing is written between two runs.
    before: StoreDigest,
}

impl InformersRun<'_> {
    /// Measures one informer by itself; returns its peak memory in bytes.
    async fn measure(&mut self, row: &InformerRow, results: &mut Results) -> Result<f64> {
        results.column(row.name);
        let started = Informer::start(row.id(), row.command(self.flags)?).await?;
        let (mut informer, synced, duration) = started;
        results.figure("process start to synced, s", duration.as_secs_f64());
        results.figure("list begun to synced, s", synced.sync_ms / 1e3);
        results.figure(SYNC_CPU, synced.cpu_ms / 1e3);
        results.figure(SYNC_PEAK, synced.peak_rss / MIB);
        results.figure("objects", synced.objects as f64);
        if synced.objects != self.before.objects {
            let (has, server) = (synced.objects, self.before.objects);
            results.fault(format!(
                "{}: synced with {has} objects, the server has {server}",
                row.name
            ));
        }
        tokio::time::sleep(self.flags.settle).await;
        let rested = informer.usage().await?;
        results.figure(REST, rested.rss / MIB);
        results.figure("CPU of the rest, ms", rested.cpu_ms - synced.cpu_ms);

        let last = self.write(results).await?;
        let (churned, there) = informer.reach(last, LAG_WAIT).await?;
        if !there {
            results.fault(format!(
                "{}: has not seen version {last} after {LAG_WAIT:?}",
                row.name
            ));
        }
        self.report_churn(results, &rested, &churned);
        tokio::time::sleep(self.flags.settle).await;
        let rested = informer.usage().await?;
        results.figure(CHURN_PEAK, rested.peak_rss / MIB);
        results.figure(CHURN_REST, rested.rss / MIB);
        if row.collects() {
            let collected = informer.collect().await?;
            results.figure("live heap, MiB", collected.heap_in_use / MIB);
            results.figure(
                "memory after forced collection, MiB",
                collected.rss_collected / MIB,
            );
        }
        let store = informer.state().await?;
        self.before = server_digest(&self.target).await?;
        let equal = self.check(&row.id(), &store, results);
        results.figure("store is the server's state", f64::from(u8::from(equal)));
        if equal {
            let start = &store.hash[..16];
            results.note(format!(
                "{}: {} objects, SHA-256 {start}…",
                row.name, store.objects
            ));
        }
        informer.end().await?;
        Ok(rested.peak_rss)
    }

    fn report_churn(&self, results: &mut Results, before: &InformerStatus, after: &InformerStatus) {
        let changes = after.updates.saturating_sub(before.updates);
        results.figure("changes told of", changes as f64);
        let written = (self.churn.rate * self.churn.duration.as_secs_f64()).max(1.0);
        results.figure(CHURN_CPU, (after.cpu_ms - before.cpu_ms) / written * 1e3);
    }

    /// Runs informers together under the same churn, as many as fit into memory; client-go's and ours come first.
    async fn together(
        &mut self,
        mut rows: Vec<(&InformerRow, f64)>,
        results: &mut Results,
    ) -> Result<()> {
        rows.sort_by_key(|(row, _)| !matches!(row.name, "client-go" | "ours"));
        let mut room = machine::available_memory()? * MEMORY_SHARE;
        let mut informers = Vec::new();
        for (row, peak) in rows {
            if peak > room {
                results.note(format!("{}: left out: not enough memory", row.id()));
                continue;
            }
            room -= peak;
            let (informer, ..) = Informer::start(row.id(), row.command(self.flags)?).await?;
            informers.push((row.id(), informer));
        }
        let last = self.write(results).await?;
        self.before = server_digest(&self.target).await?;
        results.figure("informers", informers.len() as f64);
        let mut equal: u32 = 0;
        for (name, mut informer) in informers {
            let (_, there) = informer.reach(last, LAG_WAIT).await?;
            if !there {
                results.fault(format!(
                    "{name}: has not seen version {last} after {LAG_WAIT:?}"
                ));
            }
            let store = informer.state().await?;
            equal += u32::from(self.check(&name, &store, results));
            informer.end().await?;
        }
        results.figure("stores that are the server's state", f64::from(equal));
        let StoreDigest { objects, hash } = &self.before;
        results.note(format!("the server: {objects} objects, SHA-256 {hash}"));
        Ok(())
    }

    /// Changes pods for one run; returns the last version. If the writer misses its rate, the results are invalid.
    async fn write(&mut self, results: &mut Results) -> Result<u64> {
        self.turn += 1;
        let churned = self.churn.run(&self.target, self.turn).await?;
        let wanted = self.churn.duration;
        if churned.duration.mul_f64(RATE_MET) > wanted {
            results.invalid(format!(
                "{} changes took {:?} instead of {wanted:?}: the machine or the API server is too slow for this rate",
                churned.count, churned.duration
            ));
        }
        Ok(churned.last)
    }

    /// Whether a store equals the server's state; if not, adds a fault.
    fn check(&self, name: &str, store: &StoreDigest, results: &mut Results) -> bool {
        let equal = *store == self.before;
        if !equal {
            results.fault(format!(
                "{name} holds {store:?}, the server {:?}",
                self.before
            ));
        }
        equal
    }
}

fn target(flags: &PodFlags) -> Result<Target> {
    let ca = flags.ca.as_deref();
    Target::new(&flags.target, flags.token.as_deref(), ca.map(Path::new))
}
