//! Reports and figures of benches become one report; inputs of different commits or machines are refused.

use serde_json::json;
use tempfile::TempDir;

use super::*;

/// Writes a file into a folder; returns its path.
fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    file
}

/// One scenario with a run and a target, in the format that benches write too.
fn played(name: &str) -> Value {
    json!({
        "name": name, "about": "", "command": "", "scale": 1.0, "swept": null, "show": [],
        "targets": [{"what": "speed", "figure": "speed, ms", "of": "a", "at-most": 2.0}],
        "runs": [{"label": "a", "columns": [{"name": "ours", "figures": {"speed, ms": {"values": [1.0, 3.0, 1.5]}},
            "histograms": {"latency": [[1.0, 2]]}}]}],
    })
}

fn report(commit: &str, scenario: &str) -> String {
    json!({
        "schema": 2, "begun_at": "", "command": "", "took_s": 60.0, "commit": commit, "source": null,
        "machine": {"cores": 2, "processor": "x", "memory_mib": 1, "kernel": "6", "load_before": "", "busy_before": 0.0},
        "versions": {}, "claims": [], "scenarios": [played(scenario)],
    })
    .to_string()
}

fn merged(folder: &TempDir, inputs: &[PathBuf]) -> Result<Report> {
    let out = folder.path().join("merged.json");
    let merge = Merge {
        inputs: inputs.to_vec(),
        out: out.clone(),
        took: None,
        command: None,
    };
    assert!(merge.execute()?);
    Report::read(&out)
}

#[test]
fn reports_and_benches_become_one_report() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = [
        write(&folder, "a.json", &report("4fb7e20", "a")),
        write(&folder, "b.json", &report("4fb7e20", "b")),
        write(&folder, "bench.json", &played("bench x").to_string()),
    ];
    let report = merged(&folder, &inputs).unwrap();
    let claims: Vec<_> = report
        .claims
        .iter()
        .map(|claim| format!("{}: {} {}", claim.scenario, claim.measured, claim.verdict))
        .collect();
    assert_eq!(
        claims,
        [
            "a: 1.5 ms (1 to 3) met",
            "b: 1.5 ms (1 to 3) met",
            "bench x: 1.5 ms (1 to 3) met"
        ]
    );
    assert_eq!(report.took_s, 120.0);
    assert!(report.scenarios[0].runs[0].columns[0].histograms.is_empty());
}

#[test]
fn reports_of_different_commits_or_machines_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, "a.json", &report("4fb7e20", "a"));
    let check = |second: PathBuf, says: &str| {
        let error = merged(&folder, &[first.clone(), second]).unwrap_err();
        assert!(format!("{error:#}").contains(says), "{error:#}");
    };
    check(
        write(&folder, "b.json", &report("0000000", "b")),
        "of commit 0000000",
    );
    check(
        write(&folder, "c.json", &report("4fb7e20", "a")),
        "a: occurs twice",
    );
    let elsewhere = report("4fb7e20", "b").replace(r#""cores":2"#, r#""cores":4"#);
    check(write(&folder, "d.json", &elsewhere), "another machine");
    let bench = write(&folder, "bench.json", &played("x").to_string());
    let error = merged(&folder, &[bench]).unwrap_err();
    assert!(error.to_string().contains("no report"), "{error:#}");
}
