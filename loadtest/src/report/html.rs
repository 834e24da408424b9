//! The report as one self-contained page: a template, and the report's JSON with the tables that the terminal shows too.

use anyhow::{Context, Result};
use serde::Serialize;

use super::markdown::{TableRow, figures, headings, name, remarks, targets};
use super::{Report, RunReport, ScenarioReport};

const TEMPLATE: &str = include_str!("page.html");
/// Stands in the template for the data.
const DATA: &str = "DATA";

#[derive(Serialize)]
struct PageData<'a> {
    report: &'a Report,
    tables: Vec<ScenarioTables>,
}

#[derive(Serialize)]
struct ScenarioTables {
    headings: Vec<String>,
    targets: Vec<TableRow>,
    figures: Vec<TableRow>,
    remarks: Vec<String>,
}

impl ScenarioTables {
    fn of(scenario: &ScenarioReport) -> Self {
        Self {
            headings: headings(scenario),
            targets: targets(scenario),
            figures: figures(scenario),
            remarks: scenario.runs.iter().flat_map(lines).collect(),
        }
    }
}

fn lines(run: &RunReport) -> impl Iterator<Item = String> {
    remarks(run).map(|(kind, text)| format!("{kind} ({}): {text}", name(run)))
}

pub fn page(report: &Report) -> Result<String> {
    let data = PageData {
        report,
        tables: report.scenarios.iter().map(ScenarioTables::of).collect(),
    };
    let (before, after) = TEMPLATE
        .split_once(DATA)
        .context("the template has no place for data")?;
    // Otherwise a text of the report could end the element that holds the data.
    let json = serde_json::to_string(&data)?.replace('<', "\\u003c");
    Ok(format!("{before}{json}{after}"))
}
