//! A scenario's process: a subcommand of this program with the addresses of the servers, which writes its figures as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::plan::RunPlan;
use super::servers::{Endpoint, Servers};
use crate::report::{Column, RunReport, TARGET_COLUMN};

/// The scenario's JSON; further keys are ignored.
#[derive(Debug, Deserialize)]
struct ResultsText {
    #[serde(default)]
    scenario: String,
    runs: BTreeMap<String, BTreeMap<String, f64>>,
    #[serde(default)]
    histograms: BTreeMap<String, BTreeMap<String, Vec<(f64, u64)>>>,
    #[serde(default)]
    series: BTreeMap<String, BTreeMap<String, Vec<(f64, f64)>>>,
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
pub async fn play(planned: &RunPlan, servers: &mut Servers) -> Result<RunReport> {
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
        if let Some(url) = &under_test.admin_url {
            put("--server-admin", url.clone());
        }
    }
    put("--json", json.display().to_string());
    words
}

/// The figures in a scenario's file.
pub fn read(text: &[u8]) -> Result<RunReport> {
    let results: ResultsText = serde_json::from_slice(text)?;
    Ok(results.into())
}

/// The figures in a file with one result or a list of results, each labelled with its title.
pub fn read_all(text: &[u8]) -> Result<Vec<RunReport>> {
    let one = |_| serde_json::from_slice(text).map(|one| vec![one]);
    let all: Vec<ResultsText> = serde_json::from_slice(text).or_else(one)?;
    Ok(all.into_iter().map(RunReport::from).collect())
}

impl From<ResultsText> for RunReport {
    fn from(mut results: ResultsText) -> Self {
        let column = |(name, figures): (String, BTreeMap<String, f64>)| {
            let figures = figures.into_iter();
            Column {
                histograms: results.histograms.remove(&name).unwrap_or_default(),
                series: results.series.remove(&name).unwrap_or_default(),
                figures: figures.map(|(name, of)| (name, of.into())).collect(),
                name,
            }
        };
        let mut columns: Vec<Column> = results.runs.into_iter().map(column).collect();
        // The target comes first, then what it is compared with.
        columns.sort_by_key(|column| column.name != TARGET_COLUMN);
        if !results.passed && results.faults.is_empty() {
            results.faults.push("not passed".to_owned());
        }
        Self {
            label: results.scenario,
            repeats: 1,
            columns,
            faults: results.faults,
            invalid: results.invalid,
            notes: results.notes,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Figure;

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
