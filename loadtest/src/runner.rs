//! `run`: runs scenario files against the servers that they name, side by side, and writes a report.
//!
//! The runner starts the servers of a run on ports that the system chooses, waits until they answer, runs the scenario, and stops them
//! by their process ids in every case. Nothing is measured in this process.

pub mod arguments;
pub mod documents;
pub mod gateway;
pub mod guarded;
pub mod machine;
pub mod plan;
pub mod process;
pub mod real;
pub mod scenario_file;
pub mod scenario_process;
pub mod servers;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::GatewayFlags;
use crate::command::Subcommand;
use crate::report::figure::Figure;
use crate::report::{Report, RunReport, SCHEMA, claim, markdown, merge};

use plan::RunPlan;
use scenario_file::ScenarioFile;
use servers::Servers;

/// The gateway's name among the versions.
const GATEWAY: &str = "kube-fanout";
/// How long the machine's load is observed before everything and before each run.
const BUSY_BEFORE: Duration = Duration::from_secs(1);
const BUSY_BEFORE_RUN: Duration = Duration::from_millis(200);

/// Programs and scripts of a run.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The gateway, which is the embedded API server too.
    pub gateway: PathBuf,
    /// This program, for the scenarios.
    pub loadtest: PathBuf,
    /// The script that starts a real API server.
    pub real: PathBuf,
}

/// Runs scenario files against servers that it starts, side by side, and writes a report.
#[derive(Debug, Clone, Parser)]
#[command(name = "run")]
pub struct Runner {
    /// Scenario files, such as loadtest/scenarios/steady.yaml.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Only these servers or labels, such as embedded,gateway.
    #[arg(long, value_delimiter = ',', value_name = "SERVER")]
    pub only: Vec<String>,
    /// How often each run is repeated; all runs of a scenario once, then all again.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Write report.json and report.html to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub report: Option<PathBuf>,
    /// Factor on counts and times of the scenarios; figures of less than 1 only prove that everything works.
    #[arg(long, default_value_t = 1.0, value_parser = factor)]
    pub scale: f64,
    #[command(flatten)]
    pub gateway: GatewayFlags,
    /// Script that starts a real API server.
    #[arg(long, default_value = "tests/real/apiserver/real-apiserver.sh")]
    pub real_apiserver: PathBuf,
}

impl Subcommand for Runner {
    /// True if every run passed. A run that fails is in the report.
    fn execute(&self) -> Result<bool> {
        let report = self.report()?;
        if let Some(folder) = &self.report {
            report.save(folder)?;
            note(&format!(
                "report: {}\n",
                folder.join("report.html").display()
            ));
        }
        Ok(report.passed())
    }
}

impl Runner {
    fn report(&self) -> Result<Report> {
        let programs = Programs::find(self)?;
        let scenarios: Vec<ScenarioFile> = self
            .files
            .iter()
            .map(|file| ScenarioFile::read(file))
            .collect::<Result<_>>()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(play_all(self, &programs, &scenarios))
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.000_1..=1_000.0).contains(&factor) => Ok(factor),
        _ => Err("not a number from 0.0001 to 1000".to_owned()),
    }
}

async fn play_all(
    flags: &Runner,
    programs: &Programs,
    scenarios: &[ScenarioFile],
) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let mut signals = Signals::new()?;
    let started = Instant::now();
    let versions = programs.versions().await?;
    let commit = commit(versions.get(GATEWAY).map_or("", String::as_str));
    let mut report = Report {
        schema: SCHEMA,
        begun_at: machine::now(),
        command: command(),
        took_s: 0.0,
        source: source(&commit).await,
        commit,
        machine: machine::facts(machine::busy(BUSY_BEFORE).await),
        versions,
        claims: Vec::new(),
        scenarios: Vec::new(),
    };
    for scenario in scenarios {
        let mut played = scenario.heading(flags.scale);
        played.runs = play_scenario(flags, programs, scenario, folder.path(), &mut signals).await;
        print_result(&markdown::summary(&played));
        report.scenarios.push(played);
        if signals.came {
            break;
        }
    }
    report.took_s = started.elapsed().as_secs_f64();
    report.claims = claim::all(&report.scenarios);
    Ok(report)
}

/// All runs of a scenario, then all again for each repeat, so that changes over the hour affect all of them.
async fn play_scenario(
    flags: &Runner,
    programs: &Programs,
    scenario: &ScenarioFile,
    folder: &Path,
    signals: &mut Signals,
) -> Vec<RunReport> {
    let mut repeats = Vec::new();
    for repeat in 1..=flags.repeat {
        let mut runs = Vec::new();
        for planned in plan::plan(scenario, flags.scale, &flags.only) {
            if signals.came {
                break;
            }
            let of_all = match flags.repeat {
                1 => String::new(),
                all => format!(" ({repeat} of {all})"),
            };
            let title = format!("{}: {}{of_all}", scenario.name, planned.name());
            note(&format!("{title} … "));
            let run = play(&planned, programs, folder, signals).await;
            let outcome = if run.passed() { "passed" } else { "FAILED" };
            note(&format!("{outcome} after {:.0} s\n", run.took_s));
            runs.push(run);
        }
        repeats.push(runs);
    }
    merge::merge_repeats(repeats)
}

/// One run; its servers are stopped at the end in every case.
async fn play(
    planned: &RunPlan,
    programs: &Programs,
    folder: &Path,
    signals: &mut Signals,
) -> RunReport {
    let started = Instant::now();
    let busy_before = machine::busy(BUSY_BEFORE_RUN).await;
    let mut run = RunReport {
        label: planned.label.clone(),
        size: planned.size.clone(),
        load_before: machine::load(),
        ..RunReport::default()
    };
    let mut servers = Servers::new(programs, folder);
    let outcome = tokio::select! {
        // Dropped when a signal arrives; `servers` knows the processes.
        outcome = scenario_process::play(planned, &mut servers) => outcome,
        () = signals.wait() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(found) => {
            run = RunReport {
                label: run.label,
                size: run.size,
                load_before: run.load_before,
                ..found
            };
            run.faults.extend(servers.failures());
            let usage = servers.usage().into_iter();
            run.whole = usage
                .map(|(name, value)| (name, Figure::from(value)))
                .collect();
        }
        Err(error) => {
            run.error = Some(format!("{error:#}"));
            note(&format!("{error:#}\n{}", servers.last_lines()));
        }
    }
    let busy = ("machine busy before, %".to_owned(), busy_before.into());
    run.whole.extend([busy]);
    run.commands = std::mem::take(&mut servers.commands);
    if let Err(error) = servers.stop().await {
        run.notes.push(format!("stopping: {error:#}"));
    }
    run.took_s = started.elapsed().as_secs_f64();
    run
}

/// Prints a result to standard output. A reader that has gone, such as `head`, must not end a run while its servers are up.
fn print_result(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints progress to standard error.
fn note(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The command line of this process, without the program's folder.
fn command() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = env!("CARGO_PKG_NAME").to_owned();
    }
    arguments::join(&words)
}

impl Programs {
    fn find(flags: &Runner) -> Result<Self> {
        Ok(Self {
            gateway: flags.gateway.program()?,
            loadtest: std::env::current_exe()?,
            real: flags.real_apiserver.clone(),
        })
    }

    /// Versions by program, and the revision if this is a checkout.
    async fn versions(&self) -> Result<BTreeMap<String, String>> {
        let mut command = Command::new(&self.gateway);
        let printed = process::output(command.arg("--version"));
        let printed = printed.await.context("kube-fanout --version")?;
        let version = printed.trim().trim_start_matches("kube-fanout").trim();
        let mut versions = BTreeMap::from([
            (GATEWAY.to_owned(), version.to_owned()),
            (
                env!("CARGO_PKG_NAME").to_owned(),
                env!("CARGO_PKG_VERSION").to_owned(),
            ),
        ]);
        let mut git = Command::new("git");
        if let Ok(revision) = process::output(git.args(["describe", "--always", "--dirty"])).await {
            versions.insert("revision".to_owned(), revision.trim().to_owned());
        }
        Ok(versions)
    }
}

/// The commit in a version such as `0.1.0 (COMMIT)`, `0.1.0 (COMMIT-dirty)` or `0.1.0 (commit unknown)`.
fn commit(version: &str) -> String {
    let (_, commit) = version.rsplit_once('(').unwrap_or_default();
    let commit = commit.trim_end().trim_end_matches(')');
    match commit.rsplit(' ').next() {
        None | Some("") => "unknown".to_owned(),
        Some(commit) => commit.to_owned(),
    }
}

/// Git's hash of a commit's sources; none if the build had other changes, or the commit is unknown here.
async fn source(commit: &str) -> Option<String> {
    let is_commit = commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit());
    let mut git = Command::new("git");
    git.args(["rev-parse", "--verify", &format!("{commit}:src")]);
    if !is_commit {
        return None;
    }
    let printed = process::output(&mut git).await.ok()?;
    Some(printed.trim().to_owned())
}

/// The signals that end a run early, and whether one has arrived.
struct Signals {
    kinds: [Signal; 3],
    came: bool,
}

impl Signals {
    fn new() -> Result<Self> {
        let kinds = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        Ok(Self { kinds, came: false })
    }

    /// Waits for a signal. Can be cancelled without loss, because an unread signal stays pending.
    async fn wait(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.kinds;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        self.came = true;
    }
}

#[cfg(test)]
mod tests {
    //! The commit in a gateway's version.

    use super::commit;

    #[test]
    fn the_commit_is_in_the_version() {
        for (version, expected) in [
            ("0.1.0 (4fb7e20)", "4fb7e20"),
            ("0.1.0 (4fb7e20-dirty)", "4fb7e20-dirty"),
            ("0.1.0 (commit unknown)", "unknown"),
            ("0.1.0", "unknown"),
            ("", "unknown"),
        ] {
            assert_eq!(commit(version), expected, "{version}");
        }
    }
}
