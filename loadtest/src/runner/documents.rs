//! The commands `merge`, `page` and `quote`: they make one report from the files of several commands, docs/PERFORMANCE.md from that report,
//! and the figures in README. They measure nothing.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::Value;

use crate::command::Subcommand;
use crate::report::page::{insert_quotes, page};
use crate::report::{Report, ScenarioReport, claim};

/// Makes one report from several and from the figures of benches.
#[derive(Debug, Clone, Parser)]
#[command(name = "merge")]
pub struct Merge {
    /// Reports, and figures of benches.
    #[arg(required = true, value_name = "FILE")]
    pub inputs: Vec<PathBuf>,
    /// The report to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Duration of the whole measurement, builds included, in seconds.
    #[arg(long, value_name = "SECONDS")]
    pub took: Option<f64>,
    /// The command that repeats the measurement.
    #[arg(long)]
    pub command: Option<String>,
}

/// Prints docs/PERFORMANCE.md, made from a report. If there is no such file, the page says that nothing was measured.
#[derive(Debug, Clone, Parser)]
#[command(name = "page")]
pub struct Page {
    /// The report.
    pub file: PathBuf,
}

impl Subcommand for Page {
    fn execute(&self) -> Result<bool> {
        let report = match self.file.exists() {
            true => Some(Report::read(&self.file)?),
            false => None,
        };
        print!("{}", page(report.as_ref()));
        Ok(true)
    }
}

/// Replaces the marked figures of texts by those of a report.
#[derive(Debug, Clone, Parser)]
#[command(name = "quote")]
pub struct Quote {
    /// The report.
    pub file: PathBuf,
    /// Texts with marked figures: <!-- figure: SCENARIO: WHAT -->…<!-- end -->.
    #[arg(required = true)]
    pub documents: Vec<PathBuf>,
}

impl Subcommand for Quote {
    fn execute(&self) -> Result<bool> {
        let report = Report::read(&self.file)?;
        for file in &self.documents {
            let path = || file.display().to_string();
            let text = std::fs::read_to_string(file).with_context(path)?;
            let text = insert_quotes(&text, &report).with_context(path)?;
            std::fs::write(file, text).with_context(path)?;
        }
        Ok(true)
    }
}

impl Subcommand for Merge {
    fn execute(&self) -> Result<bool> {
        let mut merged: Option<Report> = None;
        let mut others: Vec<ScenarioReport> = Vec::new();
        for input in &self.inputs {
            let path = || input.display().to_string();
            let text = std::fs::read(input).with_context(path)?;
            let document: Value = serde_json::from_slice(&text).with_context(path)?;
            if document.get("scenarios").is_none() {
                others.push(serde_json::from_value(document).with_context(path)?);
                continue;
            }
            let report = Report::parse(&text).with_context(path)?;
            match &mut merged {
                None => merged = Some(report),
                Some(first) => add(first, report).with_context(path)?,
            }
        }
        let mut report =
            merged.context("no report among the files: figures need its commit and machine")?;
        report.scenarios.extend(others);
        let mut names: Vec<&str> = report
            .scenarios
            .iter()
            .map(|scenario| scenario.name.as_str())
            .collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("scenario {}: occurs twice", pair[0]);
        }
        // Only charts need histograms, and they would be most of the file.
        let scenarios = report.scenarios.iter_mut();
        for run in scenarios.flat_map(|scenario| &mut scenario.runs) {
            run.columns
                .iter_mut()
                .for_each(|column| column.histograms.clear());
        }
        if let Some(took_s) = self.took {
            report.took_s = took_s;
        }
        if let Some(command) = &self.command {
            report.command.clone_from(command);
        }
        report.claims = claim::all(&report.scenarios);
        report.write(&self.out)?;
        Ok(true)
    }
}

fn add(report: &mut Report, other: Report) -> Result<()> {
    let source = |report: &Report| {
        let source = report.source.as_deref().unwrap_or("unknown");
        format!("commit {} (sources {source})", report.commit)
    };
    ensure!(
        (&report.commit, &report.source) == (&other.commit, &other.source),
        "a report of {}, but the first report is of {}",
        source(&other),
        source(report)
    );
    let machine = |report: &Report| {
        let machine = &report.machine;
        (
            machine.kernel.clone(),
            machine.processor.clone(),
            machine.cores,
        )
    };
    ensure!(
        machine(report) == machine(&other),
        "a report of another machine than the first report's"
    );
    report.took_s += other.took_s;
    report.scenarios.extend(other.scenarios);
    Ok(())
}

#[cfg(test)]
mod tests;
