//! The page has both runs, says what is wrong with them, and needs nothing else.

use std::collections::BTreeMap;

use super::*;
use crate::report::SCHEMA;

fn run(label: &str, figures: &[(&str, f64)]) -> RunReport {
    let points = vec![(0.0, 1.0), (0.5, 4.0)];
    let column = Column {
        name: "target".to_owned(),
        figures: figures
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Figure::from(*value)))
            .collect(),
        histograms: BTreeMap::from([("latency, ms".to_owned(), vec![(0.5, 90), (2.0, 10)])]),
        series: BTreeMap::from([
            ("API server CPU, % of a core".to_owned(), points.clone()),
            ("gateway CPU, % of a core".to_owned(), points),
        ]),
    };
    RunReport {
        label: label.to_owned(),
        columns: vec![column],
        commands: vec!["kube-fanout serve <a & b>".to_owned()],
        ..RunReport::default()
    }
}

fn report(runs: Vec<RunReport>) -> Report {
    let scenario = serde_json::json!({"name": "kubelets", "about": "nodes", "scale": 1.0, "swept": null, "show": [], "compare": [], "targets": [], "runs": runs});
    let machine = serde_json::json!({"cores": 2, "processor": "a processor", "memory_mib": 1, "kernel": "6", "load_before": "0", "busy_before": 0.0});
    let report = serde_json::json!({"schema": SCHEMA, "begun_at": "2026-01-01T00:00:00Z", "command": "kube-fanout-loadtest compare", "took_s": 1.0,
        "commit": "abcdef1", "source": null, "machine": machine, "versions": {}, "claims": [], "scenarios": [scenario]});
    Report::parse(report.to_string().as_bytes()).unwrap()
}

#[test]
fn the_page_has_both_runs_with_units_commit_machine_and_command() {
    let alone = run(
        "embedded-tls",
        &[
            ("watches at the API server", 16_000.0),
            ("latency p99, ms", 4.0),
            ("API server CPU, % of a core", 50.0),
        ],
    );
    let through = run(
        "gateway-tls",
        &[
            ("watches at the API server", 12.0),
            ("latency p99, ms", 6.0),
            ("API server CPU, % of a core", 5.0),
            ("gateway RSS, MiB", 90.0),
        ],
    );
    let page = page(&report(vec![alone, through])).unwrap();
    for text in [
        "The API server holds 12 watches instead of 16,000, uses 5 % of a core instead of 50 %; the slowest hundredth",
        "16,000",
        "−99.9 %",
        "+50 %",
        "4 ms",
        "90 MiB",
        "abcdef1",
        "a processor",
        "kube-fanout-loadtest compare",
        "serve &lt;a &amp; b&gt;",
    ] {
        assert!(page.contains(text), "{text}\n{page}");
    }
    // Latency and CPU, each in two widths; memory was not sampled.
    assert_eq!(page.matches("<svg").count(), 4);
    for outside in ["<script", "http://127", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn faults_are_shown_and_a_run_without_figures_is_refused() {
    let mut failed = run("gateway-tls", &[]);
    failed.faults = vec!["lost: version 7".to_owned()];
    let shown = page(&report(vec![run("embedded-tls", &[]), failed.clone()])).unwrap();
    assert!(shown.contains("gateway-tls: lost: version 7"), "{shown}");
    failed.columns.clear();
    failed.error = Some("no start".to_owned());
    let error = page(&report(vec![run("embedded-tls", &[]), failed])).unwrap_err();
    assert!(error.to_string().contains("no start"), "{error}");
    assert!(page(&report(vec![run("embedded-tls", &[])])).is_err());
}

#[test]
fn a_change_is_said_as_people_say_it() {
    for (alone, through, expected) in [
        (100.0, 7.0, "−93 %"),
        (16_000.0, 12.0, "−99.9 %"),
        (10.0, 12.0, "+20 %"),
        (10.0, 35.0, "3.5 ×"),
        (10.0, 10.0, "equal"),
        (0.0, 5.0, ""),
    ] {
        assert_eq!(change(alone, through), expected, "{alone} {through}");
    }
}
