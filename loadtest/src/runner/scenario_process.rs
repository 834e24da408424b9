//! A scenario's process: a subcommand of this program with the addresses of the servers, which writes its figures as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::plan::RunPlan;
use super::servers::{Endpoint, Servers};
use crate::report::figure::Figure;
use crate::report::{Column, TARGET_COLUMN};

/// The figures and remarks of a run.
#[derive(Debug, Default)]
pub struct RunFigures {
    /// Columns of figures.
    pub columns: Vec<Column>,
    /// Wrong answers of the server.
    pub faults: Vec<String>,
    /// Why the figures are not those of the scenario.
    pub invalid: Vec<String>,
    /// Other remarks.
    pub notes: Vec<String>,
}

/// The scenario's JSON; further keys are ignored.
#[derive(Debug, Deserialize)]
struct ResultsText {
    runs: BTreeMap<String, BTreeMap<String, f64>>,
    #[serde(default)]
    histograms: BTreeMap<String, BTreeMap<String, Vec<(f64, u64)>>>,
    #[serde(default)]
    faults: Vec<String>,
    #[serde(default)]
    invalid: Vec<String>,
    #[serde(default)]
    notes: Vec<String>,
    passed: bool,
}

/// Starts the servers, runs the scenario, and reads the figures. `servers` knows all started processes, also when this future is dropped.
/// Wrong answers are faults, not errors.
pub async fn play(planned: &RunPlan, servers: &mut Servers) -> Result<RunFigures> {
    let (api, gateway) = servers.start(planned).await?;
    let json = servers.json();
    // A file of an earlier run must not be taken for this one's.
    let _ = std::fs::remove_file(&json);
    let process = servers.play(&arguments(planned, &api, gateway.as_ref(), &json))?;
    let status = process.wait_for_end(planned.limit).await?;
    let text = std::fs::read(&json)
        .with_context(|| format!("the scenario ended without figures: {status}"))?;
    let found = read(&text).with_context(|| json.display().to_string())?;
    if !status.success() && found.faults.is_empty() {
        bail!("the scenario failed without a fault: {status}");
    }
    Ok(found)
}

/// The command line of the scenario: its own flags, and the servers.
pub fn arguments(
    planned: &RunPlan,
    api: &Endpoint,
    gateway: Option<&Endpoint>,
    json: &Path,
) -> Vec<String> {
    let mut words = planned.play.clone();
    let mut put = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    let under_test = gateway.unwrap_or(api);
    put("--target", under_test.url.clone());
    if let Some(ca) = &under_test.ca {
        put("--ca", ca.display().to_string());
    }
    if let Some(token) = &under_test.token {
        put("--token", format!("@{}", token.display()));
    }
    put("--server-pid", under_test.pid.to_string());
    if gateway.is_some() {
        put("--reference", api.url.clone());
        if let Some(ca) = &api.ca {
            put("--reference-ca", ca.display().to_string());
        }
        put("--upstream-pid", api.pid.to_string());
    }
    put("--json", json.display().to_string());
    words
}

/// The figures in a scenario's file.
pub fn read(text: &[u8]) -> Result<RunFigures> {
    Ok(found(serde_json::from_slice(text)?))
}

/// The figures in a file with one result or a list of results, each with its title.
pub fn read_all_results(text: &[u8]) -> Result<Vec<(String, RunFigures)>> {
    let document: serde_json::Value = serde_json::from_slice(text)?;
    let all_results = match document {
        serde_json::Value::Array(all_results) => all_results,
        results => vec![results],
    };
    let read = |results: serde_json::Value| {
        let title = results["scenario"].as_str().unwrap_or_default().to_owned();
        Ok((title, found(serde_json::from_value(results)?)))
    };
    all_results.into_iter().map(read).collect()
}

fn found(mut written: ResultsText) -> RunFigures {
    let column = |(name, figures): (String, BTreeMap<String, f64>)| {
        let histograms = written.histograms.remove(&name).unwrap_or_default();
        Column {
            name,
            figures: figures
                .into_iter()
                .map(|(name, value)| (name, Figure::from(value)))
                .collect(),
            histograms,
        }
    };
    let mut columns: Vec<Column> = written.runs.into_iter().map(column).collect();
    // The target comes first, then what it is compared with.
    columns.sort_by_key(|column| column.name != TARGET_COLUMN);
    let mut faults = written.faults;
    if !written.passed && faults.is_empty() {
        faults.push("not passed".to_owned());
    }
    RunFigures {
        columns,
        faults,
        invalid: written.invalid,
        notes: written.notes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_histograms_come_together_by_column() {
        let text = br#"{"scenario": "steady", "runs": {"target": {"watchers": 5, "latency p50, ms": 0.25}, "socket loop": {}},
            "histograms": {"target": {"delivery": [[0.5, 9], [1.0, 1]]}}, "faults": [], "notes": ["slow"], "passed": true}"#;
        let found = read(text).unwrap();
        assert_eq!(found.columns.len(), 2);
        let target = found
            .columns
            .iter()
            .find(|column| column.name == "target")
            .unwrap();
        assert_eq!(target.figures["latency p50, ms"], Figure::from(0.25));
        assert_eq!(target.histograms["delivery"], [(0.5, 9), (1.0, 1)]);
        assert_eq!(
            (found.faults.len(), found.notes),
            (0, vec!["slow".to_owned()])
        );
    }

    #[test]
    fn results_without_histograms_are_valid() {
        let found = read(br#"{"runs": {"target": {}}, "passed": true}"#).unwrap();
        assert!(found.columns[0].histograms.is_empty());
    }

    #[test]
    fn results_that_did_not_pass_have_a_fault() {
        let found = read(br#"{"runs": {}, "passed": false}"#).unwrap();
        assert_eq!(found.faults, ["not passed"]);
        assert!(read(b"{}").is_err() && read(b"[]").is_err());
    }
}
