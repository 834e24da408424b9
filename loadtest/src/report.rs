//! The results of a run of scenarios: kept as JSON, shown as one HTML page, and in short as tables on a terminal.
//!
//! Everything here is a function of the kept JSON, so that a report can be rendered again; nothing is measured.

pub mod claim;
pub mod figure;
pub mod html;
pub mod markdown;
pub mod merge;
pub mod number;
pub mod page;
pub mod target;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use claim::Claim;
use figure::Figure;
use target::FigureTarget;

/// The file in a report's folder from which the page is made.
const JSON: &str = "report.json";
const HTML: &str = "report.html";
/// The format of the JSON. Format 1 had one value per figure, and no commit.
pub const SCHEMA: u32 = 2;
/// The column that scenarios name after the server under test.
pub const TARGET_COLUMN: &str = "target";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// When the run started, RFC 3339.
    pub begun_at: String,
    /// The command that repeats the run.
    pub command: String,
    /// Duration of the whole run, seconds.
    pub took_s: f64,
    /// The commit that the gateway was built from, as `--version` prints it: with `-dirty` behind it, or `unknown`.
    pub commit: String,
    /// Git's hash of that commit's `src`, if known: other commits of the same program have the same.
    pub source: Option<String>,
    /// The machine that the run was made on.
    pub machine: Machine,
    pub versions: BTreeMap<String, String>,
    /// Statements about the figures, for readers of the JSON; computed again whenever it is read here.
    pub claims: Vec<Claim>,
    /// In the order of the runs.
    pub scenarios: Vec<ScenarioReport>,
}

/// The machine of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub cores: usize,
    pub processor: String,
    pub memory_mib: u64,
    pub kernel: String,
    /// Load averages over 1, 5 and 15 minutes before the first run.
    pub load_before: String,
    /// Share of all processors that was busy in the second before the first run, %.
    pub busy_before: f64,
}

/// A scenario file with all its runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScenarioReport {
    pub name: String,
    pub about: String,
    /// The command that runs it alone.
    #[serde(default)]
    pub command: String,
    /// Factor on counts and times; 1 is the scenario as written.
    pub scale: f64,
    /// The flag that the runs sweep over, if any.
    pub swept: Option<String>,
    /// The figures that are shown first and drawn.
    pub show: Vec<String>,
    pub targets: Vec<FigureTarget>,
    /// One run per server and size.
    pub runs: Vec<RunReport>,
}

/// A scenario against one set of servers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunReport {
    pub label: String,
    /// Value of the swept flag.
    pub size: Option<String>,
    #[serde(default)]
    pub repeats: usize,
    /// Load averages over 1, 5 and 15 minutes before it, for each repeat.
    #[serde(default)]
    pub load_before: String,
    /// Time from the first server's start to the last one's end, of all repeats together, seconds.
    #[serde(default)]
    pub took_s: f64,
    /// Every command line, servers first.
    #[serde(default)]
    pub commands: Vec<String>,
    /// Why there are no figures, if the scenario could not run.
    #[serde(default)]
    pub error: Option<String>,
    /// Usage of the servers' processes at the end, and of the machine before.
    #[serde(default)]
    pub whole: BTreeMap<String, Figure>,
    pub columns: Vec<Column>,
    /// Wrong answers of the server.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Why the figures are not those of the scenario.
    #[serde(default)]
    pub invalid: Vec<String>,
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One column of a scenario's figures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Column {
    /// The scenario's name for it.
    pub name: String,
    /// Value by name; the unit follows the last comma of the name.
    pub figures: BTreeMap<String, Figure>,
    /// Counts by upper bound in milliseconds, by name; of all repeats together.
    #[serde(default)]
    pub histograms: BTreeMap<String, Vec<(f64, u64)>>,
    /// Values by seconds, by name; of the first repeat.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
}

impl RunReport {
    /// Whether it ran without faults.
    pub fn passed(&self) -> bool {
        self.error.is_none() && self.faults.is_empty()
    }

    /// The named column; without a name the only one, or the one of the server under test.
    pub fn column(&self, name: Option<&str>) -> Option<&Column> {
        match (name, self.columns.as_slice()) {
            (Some(name), columns) => columns.iter().find(|column| column.name == name),
            (None, [only]) => Some(only),
            (None, columns) => columns.iter().find(|column| column.name == TARGET_COLUMN),
        }
    }

    /// Title of a column among those of all runs.
    pub fn heading(&self, column: &Column) -> String {
        let size = self
            .size
            .as_ref()
            .map_or(String::new(), |size| format!(" at {size}"));
        if self.columns.len() == 1 || column.name == TARGET_COLUMN {
            return format!("{}{size}", self.label);
        }
        format!("{}{size}: {}", self.label, column.name)
    }
}

impl ScenarioReport {
    /// Every column with its run, in order.
    pub fn columns(&self) -> impl Iterator<Item = (&RunReport, &Column)> {
        self.runs
            .iter()
            .flat_map(|run| run.columns.iter().map(move |column| (run, column)))
    }

    /// A figure of a column. A figure of the whole run belongs to the column of the server under test, or to the last column.
    pub fn figure<'a>(run: &'a RunReport, column: &'a Column, name: &str) -> Option<&'a Figure> {
        let whole = || {
            let stands_for_all = run.column(None).or(run.columns.last());
            stands_for_all
                .filter(|one| one.name == column.name)
                .and_then(|_| run.whole.get(name))
        };
        column.figures.get(name).or_else(whole)
    }
}

impl Report {
    /// Whether every run passed. Missed targets do not count.
    pub fn passed(&self) -> bool {
        self.scenarios
            .iter()
            .flat_map(|played| &played.runs)
            .all(RunReport::passed)
    }

    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read(file).with_context(|| file.display().to_string())?;
        Self::parse(&text).with_context(|| file.display().to_string())
    }

    /// Like [`Self::read`], given the text.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let document: serde_json::Value = serde_json::from_slice(text)?;
        let schema = document["schema"].as_u64().unwrap_or(1);
        ensure!(
            schema == u64::from(SCHEMA),
            "a report of format {schema}, this program reads {SCHEMA}: measure again"
        );
        let mut report: Self = serde_json::from_value(document)?;
        report.claims = claim::all(&report.scenarios);
        Ok(report)
    }

    pub fn write(&self, file: &Path) -> Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        std::fs::write(file, text).with_context(|| file.display().to_string())
    }

    /// Writes JSON and HTML to a folder, which is created if needed.
    pub fn save(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        self.write(&folder.join(JSON))?;
        let file = folder.join(HTML);
        std::fs::write(&file, html::page(self)?).with_context(|| file.display().to_string())
    }
}

#[cfg(test)]
mod tests;
