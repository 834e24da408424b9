//! Flags of `run` and `report`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Flags of `run`.
#[derive(Debug, Clone, Args)]
pub struct Runner {
    /// Scenario files, such as loadtest/scenarios/steady.yaml.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Only against these servers or runs, such as embedded,gateway.
    #[arg(long, value_delimiter = ',', value_name = "SERVER")]
    pub only: Vec<String>,
    /// How often each run is played; all of a scenario once, then all again.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Write report.json, report.md and report.html to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub report: Option<PathBuf>,
    /// Factor on counts and times of the scenarios; figures of less than 1 prove only that all works.
    #[arg(long, default_value_t = 1.0, value_parser = factor)]
    pub scale: f64,
    /// The gateway's program; by default the one beside this.
    #[arg(long)]
    pub gateway: Option<PathBuf>,
    /// What starts a real API server.
    #[arg(long, default_value = "tests/real/apiserver/real-apiserver.sh")]
    pub real_apiserver: PathBuf,
}

/// Flags of `report`.
#[derive(Debug, Clone, Args)]
pub struct Render {
    /// Folder of an earlier run's --report.
    pub folder: PathBuf,
}

/// Flags of `merge`.
#[derive(Debug, Clone, Args)]
pub struct Merge {
    /// Reports, figures of benches, and SCENARIO.yaml=FIGURES.json for a player that was run by itself.
    #[arg(required = true, value_name = "FILE")]
    pub inputs: Vec<String>,
    /// The report to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// How long all of it took, builds included, in seconds.
    #[arg(long, value_name = "SECONDS")]
    pub took: Option<f64>,
    /// The command that repeats it.
    #[arg(long)]
    pub command: Option<String>,
}

/// Flags of `page`.
#[derive(Debug, Clone, Args)]
pub struct Page {
    /// The report; history.md must be beside it.
    pub file: PathBuf,
}

/// Flags of `quote`.
#[derive(Debug, Clone, Args)]
pub struct Quote {
    /// The report.
    pub file: PathBuf,
    /// Texts whose figures are marked: <!-- figure: SCENARIO: WHAT -->…<!-- end -->.
    #[arg(required = true)]
    pub documents: Vec<PathBuf>,
}

/// Flags of `guarded`.
#[derive(Debug, Clone, Args)]
pub struct GuardedProgram {
    /// The process to end with.
    #[arg(long)]
    pub parent: u32,
    /// What to run.
    pub program: PathBuf,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.000_1..=1_000.0).contains(&factor) => Ok(factor),
        _ => Err("a number above 0".to_owned()),
    }
}
