//! What a run of scenarios found: kept as JSON, shown as Markdown and as one HTML page.
//!
//! Everything here is a function of the kept JSON, so that a report can be rendered anew; nothing is measured.

pub mod axis;
pub mod chart;
pub mod histogram;
pub mod html;
pub mod markdown;
pub mod number;
pub mod target;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use target::{Comparison, Target};

/// The file in a report's folder that the other two are made of.
const JSON: &str = "report.json";
const MARKDOWN: &str = "report.md";
const HTML: &str = "report.html";
/// The column that a player calls the server it was sent to.
pub const TARGET_COLUMN: &str = "target";

/// Everything of one invocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// When it began, RFC 3339.
    pub begun_at: String,
    /// The command that repeats it.
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// Version by program.
    pub versions: BTreeMap<String, String>,
    /// In the order they were played.
    pub scenarios: Vec<Played>,
}

/// The machine that a run met.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Processors this process may use.
    pub cores: usize,
    /// Their model.
    pub processor: String,
    /// Main memory.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
}

/// One scenario with all its runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Played {
    /// Name of its file.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// Factor on its counts and times; 1 is the scenario as written.
    pub scale: f64,
    /// The flag whose value is the runs' size, if it was swept over.
    pub swept: Option<String>,
    /// The figures that are shown first and drawn.
    pub show: Vec<String>,
    /// Ratios to compute.
    pub compare: Vec<Comparison>,
    /// What ought to be reached.
    pub targets: Vec<Target>,
    /// One per server and size.
    pub runs: Vec<Run>,
}

/// A player against one set of servers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Run {
    /// Which servers.
    pub label: String,
    /// Value of the swept flag.
    pub size: Option<String>,
    /// Load averages over 1, 5 and 15 minutes before it.
    pub load_before: String,
    /// Time from the first server's start to the last one's end.
    pub took_s: f64,
    /// Every command line, servers first.
    pub commands: Vec<String>,
    /// Why there are no figures, if it could not be played.
    pub error: Option<String>,
    /// What the system says about the servers at the end.
    pub whole: BTreeMap<String, f64>,
    /// What the player found.
    pub columns: Vec<Column>,
    /// What was wrong with the server's answers.
    pub faults: Vec<String>,
    /// Why its figures are not those of the scenario.
    #[serde(default)]
    pub invalid: Vec<String>,
    /// What is worth reading besides.
    pub notes: Vec<String>,
}

/// One column of a player's figures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Column {
    /// The player's name for it.
    pub name: String,
    /// Value by name; the unit follows the last comma of the name.
    pub figures: BTreeMap<String, f64>,
    /// Counts by upper bound in milliseconds, by name.
    pub histograms: BTreeMap<String, Vec<(f64, u64)>>,
}

impl Run {
    /// Whether it was played and nothing was wrong.
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

    /// What a column is called among those of all runs.
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

impl Played {
    /// Every column with its run, in order.
    pub fn columns(&self) -> impl Iterator<Item = (&Run, &Column)> {
        self.runs
            .iter()
            .flat_map(|run| run.columns.iter().map(move |column| (run, column)))
    }

    /// A figure of a column. One of the run as a whole stands in the column of the server under test, or in the last.
    pub fn figure(run: &Run, column: &Column, name: &str) -> Option<f64> {
        let whole = || {
            let stands_for_all = run.column(None).or(run.columns.last());
            stands_for_all
                .filter(|one| one.name == column.name)
                .and_then(|_| run.whole.get(name))
        };
        column.figures.get(name).or_else(whole).copied()
    }
}

impl Report {
    /// Whether every run passed. Targets have no say.
    pub fn passed(&self) -> bool {
        self.scenarios
            .iter()
            .flat_map(|played| &played.runs)
            .all(Run::passed)
    }

    /// Reads the report of a folder.
    ///
    /// # Errors
    /// If it is not there or not a report.
    pub fn load(folder: &Path) -> Result<Self> {
        let file = folder.join(JSON);
        let text = std::fs::read(&file).with_context(|| file.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| file.display().to_string())
    }

    /// Writes JSON, Markdown and HTML to a folder, which is made if need be.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let write = |name: &str, text: Vec<u8>| {
            let file = folder.join(name);
            std::fs::write(&file, text).with_context(|| file.display().to_string())
        };
        write(JSON, serde_json::to_vec_pretty(self)?)?;
        write(MARKDOWN, markdown::page(self).into_bytes())?;
        write(HTML, html::page(self).into_bytes())
    }
}

#[cfg(test)]
mod tests;
