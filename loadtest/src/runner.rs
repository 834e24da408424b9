//! `run`: plays scenario files, each against the servers it names, side by side, and reports.
//!
//! It starts what a run needs, on ports that the system gives, waits until it answers, plays, and stops it by its process id,
//! whatever happens. Nothing of what is measured happens in this process.

pub mod file;
pub mod guarded;
pub mod machine;
pub mod plan;
pub mod player;
pub mod process;
pub mod real;
pub mod servers;
pub mod words;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::runner::{Render, Runner};
use crate::report::{Report, Run, markdown};

use file::Scenario;
use plan::Planned;
use servers::Servers;

/// The programs and scripts that runs are made of.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The gateway, which is the embedded API server too.
    pub gateway: PathBuf,
    /// This program, for its players.
    pub player: PathBuf,
    /// What starts a real API server.
    pub real: PathBuf,
}

/// Renders a kept report anew.
///
/// # Errors
/// If it cannot be read or written.
pub fn render(flags: &Render) -> Result<()> {
    let report = Report::load(&flags.folder)?;
    report.save(&flags.folder)?;
    tell(&markdown::page(&report));
    Ok(())
}

/// Plays all files; true if every run passed.
///
/// # Errors
/// If a file is wrong, a program is missing, or the report cannot be written. A run that fails is in the report.
pub fn run(flags: &Runner) -> Result<bool> {
    let programs = Programs::find(flags)?;
    let scenarios: Vec<Scenario> = flags
        .files
        .iter()
        .map(|file| Scenario::read(file))
        .collect::<Result<_>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let report = runtime.block_on(play_all(flags, &programs, &scenarios))?;
    if let Some(folder) = &flags.report {
        report.save(folder)?;
        note(&format!(
            "report: {}\n",
            folder.join("report.html").display()
        ));
    }
    Ok(report.passed())
}

async fn play_all(flags: &Runner, programs: &Programs, scenarios: &[Scenario]) -> Result<Report> {
    let folder = Folder::new()?;
    let mut signals = Signals::new()?;
    let mut report = Report {
        begun_at: machine::now(),
        command: command(),
        machine: machine::facts(),
        versions: programs.versions().await?,
        scenarios: Vec::new(),
    };
    for scenario in scenarios {
        let mut played = scenario.heading(flags.scale);
        for planned in plan::plan(scenario, flags.scale, &flags.only) {
            note(&format!("{}: {} … ", scenario.name, planned.name()));
            let run = play(&planned, programs, &folder.0, &mut signals).await;
            let outcome = if run.passed() { "passed" } else { "FAILED" };
            note(&format!("{outcome} after {:.0} s\n", run.took_s));
            played.runs.push(run);
            if signals.came {
                break;
            }
        }
        tell(&markdown::summary(&played));
        report.scenarios.push(played);
        if signals.came {
            break;
        }
    }
    Ok(report)
}

/// One run, with its servers stopped at the end of it whatever came.
async fn play(planned: &Planned, programs: &Programs, folder: &Path, signals: &mut Signals) -> Run {
    let begun = Instant::now();
    let mut run = Run {
        label: planned.label.clone(),
        size: planned.size.clone(),
        load_before: machine::load(),
        ..Run::default()
    };
    let mut servers = Servers::new(programs, folder);
    let outcome = tokio::select! {
        // Dropped when a signal comes; what was started is known to `servers`.
        outcome = player::play(planned, &mut servers) => outcome,
        () = signals.wait() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(found) => {
            (run.columns, run.faults, run.notes) = (found.columns, found.faults, found.notes);
            run.invalid = found.invalid;
            run.whole = servers.usage();
        }
        Err(error) => {
            run.error = Some(format!("{error:#}"));
            note(&format!("{error:#}\n{}", servers.last_lines()));
        }
    }
    run.commands = std::mem::take(&mut servers.commands);
    if let Err(error) = servers.stop().await {
        run.notes.push(format!("stopping: {error:#}"));
    }
    run.took_s = begun.elapsed().as_secs_f64();
    run
}

/// A result, on standard output. A reader that went away, such as `head`, shall not end a run with its servers there.
fn tell(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Progress, on standard error.
fn note(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The command line of this process, without the folder that the program is in.
fn command() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = env!("CARGO_PKG_NAME").to_owned();
    }
    words::joined(&words)
}

impl Programs {
    /// The flags' programs; by default the gateway beside this one.
    fn find(flags: &Runner) -> Result<Self> {
        let player = std::env::current_exe()?;
        let beside = || player.with_file_name("kube-fanout");
        let gateway = flags.gateway.clone().unwrap_or_else(beside);
        anyhow::ensure!(
            gateway.is_file(),
            "{} is missing: cargo build --release --workspace, or --gateway FILE",
            gateway.display()
        );
        Ok(Self {
            gateway,
            player,
            real: flags.real_apiserver.clone(),
        })
    }

    /// Versions by program, and the revision if this runs in a checkout.
    async fn versions(&self) -> Result<BTreeMap<String, String>> {
        let mut command = Command::new(&self.gateway);
        let printed = process::output(command.arg("--version"));
        let printed = printed.await.context("kube-fanout --version")?;
        let version = printed.trim().trim_start_matches("kube-fanout").trim();
        let mut versions = BTreeMap::from([
            ("kube-fanout".to_owned(), version.to_owned()),
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

/// A folder for logs, certificates and the servers' data, gone in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let folder =
            std::env::temp_dir().join(format!("{}-{}", env!("CARGO_PKG_NAME"), std::process::id()));
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The signals that end a run early, and whether one came.
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

    /// Until one comes; safe to cancel, because one that was not taken stays pending.
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
