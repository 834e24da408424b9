//! Reports of an invented run: ratios, verdicts, headings, tables, and pages with hostile texts.

use super::figure::Figure;
use super::target::TargetVerdict;
use super::*;

const CPU: &str = "server CPU per delivered event, µs";

fn run(label: &str, size: Option<&str>, columns: &[(&str, f64)]) -> RunReport {
    let column = |(name, value): &(&str, f64)| Column {
        name: (*name).to_owned(),
        figures: BTreeMap::from([(CPU.to_owned(), Figure::from(*value))]),
        histograms: BTreeMap::from([("delivery".to_owned(), vec![(0.5, 90), (4.0, 10)])]),
        ..Column::default()
    };
    RunReport {
        label: label.to_owned(),
        size: size.map(str::to_owned),
        whole: BTreeMap::from([("server peak RSS, MiB".to_owned(), Figure::from(40.0))]),
        columns: columns.iter().map(column).collect(),
        ..RunReport::default()
    }
}

fn played(runs: Vec<RunReport>) -> ScenarioReport {
    ScenarioReport {
        name: "steady".to_owned(),
        about: "watchers".to_owned(),
        command: "run steady".to_owned(),
        scale: 1.0,
        swept: None,
        show: vec![CPU.to_owned()],
        targets: Vec::new(),
        runs,
    }
}

fn two_servers() -> ScenarioReport {
    played(vec![
        run("embedded", None, &[("target", 12.0)]),
        run("gateway", None, &[("socket loop", 2.0), ("target", 3.0)]),
    ])
}

/// A target with server, divisor and bound.
fn target(of: &str, to: Option<&str>, at_most: f64) -> FigureTarget {
    FigureTarget {
        what: "CPU".to_owned(),
        figure: CPU.to_owned(),
        of: of.to_owned(),
        at: None,
        to: to.map(str::to_owned),
        to_at: None,
        less: None,
        at_most: Some(at_most),
        at_least: None,
    }
}

fn report(scenarios: Vec<ScenarioReport>) -> Report {
    let machine = Machine {
        cores: 2,
        processor: "CPU <x>".to_owned(),
        memory_mib: 1_024,
        kernel: "6".to_owned(),
        load_before: "0.1 0.2 0.3".to_owned(),
        busy_before: 1.5,
    };
    Report {
        schema: SCHEMA,
        took_s: 120.0,
        commit: "4fb7e20".to_owned(),
        source: Some("0a1b2c".to_owned()),
        claims: claim::all(&scenarios),
        begun_at: "2026-11-21T18:00:00Z".to_owned(),
        command: "run a && b".to_owned(),
        machine,
        versions: BTreeMap::new(),
        scenarios,
    }
}

#[test]
fn the_target_is_meant_where_no_column_is_named() {
    let target = target("gateway", Some("gateway / socket loop"), 1.35);
    assert_eq!(target.value(&two_servers()), Some(1.5));
    assert_eq!(target.verdict(&two_servers()), TargetVerdict::Short);
    assert_eq!(target.bound(), "≤ 1.35 × gateway / socket loop");
}

#[test]
fn a_figure_may_be_bounded_by_itself_or_by_its_distance() {
    let mut target = target("gateway", None, 3.0);
    assert_eq!(
        (target.value(&two_servers()), target.verdict(&two_servers())),
        (Some(3.0), TargetVerdict::Met)
    );
    assert_eq!(target.bound(), "≤ 3 µs");
    target.less = Some("gateway / socket loop".to_owned());
    assert_eq!(target.value(&two_servers()), Some(1.0));
    (target.at_most, target.at_least) = (None, Some(1.5));
    assert_eq!(target.verdict(&two_servers()), TargetVerdict::Short);
}

#[test]
fn figures_that_were_not_measured_have_no_verdict() {
    for (of, to) in [
        ("real", None),
        ("gateway", Some("real")),
        ("gateway / nothing", None),
    ] {
        assert_eq!(
            target(of, to, 1.0).verdict(&two_servers()),
            TargetVerdict::Unknown,
            "{of} {to:?}"
        );
    }
    let zero = played(vec![
        run("a", None, &[("target", 0.0)]),
        run("b", None, &[("target", 1.0)]),
    ]);
    assert_eq!(
        target("b", Some("a"), 1.0).verdict(&zero),
        TargetVerdict::Unknown
    );
}

#[test]
fn sizes_are_told_apart() {
    let swept = played(vec![
        run("gateway", Some("100"), &[("x", 2.0)]),
        run("gateway", Some("1000"), &[("x", 3.0)]),
    ]);
    let mut target = target("gateway", Some("gateway"), 2.0);
    assert_eq!(target.value(&swept), None, "which size is not said");
    (target.at, target.to_at) = (Some("1000".to_owned()), Some("100".to_owned()));
    assert_eq!(target.value(&swept), Some(1.5));
}

#[test]
fn figures_of_the_whole_run_count_too() {
    let mut target = target("gateway", None, 64.0);
    target.figure = "server peak RSS, MiB".to_owned();
    assert_eq!(target.value(&two_servers()), Some(40.0));
}

#[test]
fn failures_are_reported() {
    let mut bad = two_servers();
    bad.runs[0].error = Some("it did not start".to_owned());
    bad.runs[1].faults = vec!["lost <7>".to_owned()];
    let report = report(vec![bad]);
    assert!(!report.passed());
    let text = markdown::summary(&report.scenarios[0]);
    let html = html::page(&report).unwrap();
    assert!(
        text.contains("NOT PLAYED (embedded): it did not start")
            && text.contains("FAULT (gateway): lost <7>")
    );
    assert!(html.contains("FAULT (gateway): lost \\u003c7>"));
}

#[test]
fn no_text_breaks_out_of_the_page() {
    let nasty = "<script>\"'&|\n";
    let mut played = two_servers();
    for text in [&mut played.name, &mut played.about, &mut played.show[0]] {
        *text = nasty.to_owned();
    }
    for run in &mut played.runs {
        (run.label, run.notes, run.commands) = (
            nasty.to_owned(),
            vec![nasty.to_owned()],
            vec![nasty.to_owned()],
        );
        for column in &mut run.columns {
            column.name = nasty.to_owned();
            column.figures = BTreeMap::from([(nasty.to_owned(), Figure::from(1.0))]);
            column.histograms = BTreeMap::from([(nasty.to_owned(), vec![(1.0, 2), (2.0, 1)])]);
        }
    }
    let mut report = report(vec![played]);
    report.command = nasty.to_owned();
    report.versions = BTreeMap::from([(nasty.to_owned(), nasty.to_owned())]);
    let html = html::page(&report).unwrap();
    assert_eq!(
        html.matches("<script").count(),
        2,
        "data and program: {html}"
    );
    assert!(
        !html.contains("src=") && !html.contains("@import"),
        "the page needs nothing else"
    );
    let rows = markdown::summary(&report.scenarios[0]);
    let table: Vec<usize> = rows
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.replace("\\|", "").matches('|').count())
        .collect();
    assert!(
        table.windows(2).all(|pair| pair[0] == pair[1]),
        "{table:?}\n{rows}"
    );
}

#[test]
fn the_kept_report_is_the_one_that_was_made() {
    let made = report(vec![two_servers()]);
    let text = serde_json::to_string(&made).unwrap();
    let kept: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(html::page(&kept).unwrap(), html::page(&made).unwrap());
}

#[test]
fn a_run_that_was_not_the_scenario_meets_no_target() {
    let mut played = two_servers();
    let within = [
        target("gateway", None, 9.0),
        target("embedded", Some("gateway"), 9.0),
    ];
    assert!(
        within
            .iter()
            .all(|target| target.verdict(&played) == TargetVerdict::Met)
    );
    played.runs[1].invalid = vec!["too few writes".to_owned()];
    assert!(
        within
            .iter()
            .all(|target| target.verdict(&played) == TargetVerdict::Invalid)
    );
    let alone = target("embedded", None, 12.0);
    assert_eq!(alone.verdict(&played), TargetVerdict::Met);
    let text = markdown::summary(&played);
    assert!(text.contains("INVALID (gateway): too few writes"), "{text}");
}

/// Three repeats of a gateway and a loop beside it, at these events a second.
fn three_repeats(rates: [f64; 2]) -> ScenarioReport {
    let column = |name: &str, cpu: [f64; 3], rate: f64| {
        let mut figure = Figure::default();
        (0..3).for_each(|run| figure.set(run, Some(cpu[run])));
        Column {
            name: name.to_owned(),
            figures: BTreeMap::from([
                (CPU.to_owned(), figure),
                ("upstream events a second".to_owned(), Figure::from(rate)),
            ]),
            ..Column::default()
        }
    };
    let run = RunReport {
        label: "gateway".to_owned(),
        repeats: 3,
        columns: vec![
            column("target", [6.0, 3.0, 9.0], rates[0]),
            column("socket loop", [2.0, 2.0, 9.0], rates[1]),
        ],
        ..RunReport::default()
    };
    let mut played = played(vec![run]);
    played.targets = vec![target("gateway", Some("gateway / socket loop"), 1.5)];
    played
}

#[test]
fn a_target_is_judged_by_the_median_of_its_repeats() {
    let played = three_repeats([100.0, 98.0]);
    let target = &played.targets[0];
    // The ratios are 3, 1.5 and 1: that of the medians would be 3.
    let ratio = target.measured(&played).unwrap();
    assert_eq!(
        (ratio.median(), ratio.lowest(), ratio.highest()),
        (Some(1.5), Some(1.0), Some(3.0))
    );
    assert_eq!(target.verdict(&played), TargetVerdict::Met);
    let claim = &claim::all(&[played])[0];
    assert_eq!(claim.measured, "1.5 × (1 to 3)");
    assert_eq!((claim.runs, &*claim.verdict), (3, "met"));
}

#[test]
fn there_is_no_ratio_between_unequal_rates() {
    let played = three_repeats([100.0, 80.0]);
    assert_eq!(played.targets[0].verdict(&played), TargetVerdict::Unknown);
    let text = markdown::summary(&played);
    assert!(text.contains("no ratio: rates differ"), "{text}");
    let claim = &claim::all(&[played])[0];
    assert_eq!(claim.measured, "no ratio: rates differ");
}

#[test]
fn runs_with_faults_or_scale_meet_no_target() {
    let mut played = two_servers();
    played.scale = 0.1;
    let of_gateway = target("gateway", None, 9.0);
    assert_eq!(of_gateway.verdict(&played), TargetVerdict::Invalid);
    played.scale = 1.0;
    played.runs[1].faults = vec!["lost".to_owned()];
    assert_eq!(of_gateway.verdict(&played), TargetVerdict::Invalid);
    let mut unbounded = target("embedded", None, 1.0);
    unbounded.at_most = None;
    assert_eq!(unbounded.verdict(&played), TargetVerdict::Unbounded);
}

#[test]
fn another_format_is_refused_in_words() {
    let mut json = serde_json::to_value(report(vec![two_servers()])).unwrap();
    json["schema"] = 1.into();
    let error = Report::parse(json.to_string().as_bytes()).unwrap_err();
    assert!(error.to_string().contains("format 1"), "{error:#}");
    assert!(Report::parse(b"{}").is_err());
}

#[test]
fn the_page_has_missed_targets_and_the_place_of_measurement() {
    let mut missed = three_repeats([100.0, 100.0]);
    missed.targets[0].at_most = Some(1.0);
    missed.runs[0].faults = vec!["lost".to_owned()];
    let text = page::page(Some(&report(vec![missed.clone()])));
    assert!(text.contains("| CPU | 1.5 × (1 to 3) |"), "{text}");
    assert!(
        text.contains("invalid") && text.contains("FAULT (gateway): lost"),
        "{text}"
    );
    missed.runs[0].faults.clear();
    let text = page::page(Some(&report(vec![missed])));
    assert!(
        text.contains("Of 1 targets 0 are met, 1 are missed"),
        "{text}"
    );
    assert!(text.contains("commit `4fb7e20`"), "{text}");
    assert!(page::page(None).contains("No measured report is committed."));
}

#[test]
fn quoted_figures_are_those_of_the_claims() {
    let report = report(vec![three_repeats([100.0, 100.0])]);
    let text =
        "<!-- figure: build -->?<!-- end --> a <!-- figure: steady: CPU -->0.1 ×<!-- end --> loop";
    let made = page::insert_quotes(text, &report).unwrap();
    assert_eq!(
        made,
        "<!-- figure: build -->Measured at commit `4fb7e20` (2026-11-21, 2 processors, CPU <x>)<!-- end --> a <!-- figure: steady: CPU -->1.5 × (1 to 3) [≤ 1.5: met]<!-- end --> loop"
    );
    assert_eq!(page::insert_quotes(&made, &report).unwrap(), made);
    for (bad, says) in [
        ("<!-- figure: steady: RAM -->1<!-- end -->", "no such row"),
        ("<!-- figure: steady: CPU -->1", "no <!-- end -->"),
    ] {
        let error = page::insert_quotes(bad, &report).unwrap_err();
        assert!(error.to_string().contains(says), "{error:#}");
    }
}

/// Compares values; numbers may differ in the last digits after being written and read.
fn is_same(left: &serde_json::Value, right: &serde_json::Value) -> bool {
    use serde_json::Value;
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            let [left, right] = [left, right].map(|number| number.as_f64().unwrap());
            (left - right).abs() <= 1e-9 * left.abs()
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, a)| right.get(key).is_some_and(|b| is_same(a, b)))
        }
        (left, right) => left == right,
    }
}

/// The committed page was made by this program from the committed report.
#[test]
fn the_committed_page_is_that_of_the_committed_report() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let file = docs.join("performance/report.json");
    let committed = std::fs::read_to_string(docs.join("PERFORMANCE.md")).unwrap();
    let report = file.exists().then(|| Report::read(&file).unwrap());
    assert_eq!(
        committed,
        page::page(report.as_ref()),
        "kube-fanout-loadtest page docs/performance/report.json > docs/PERFORMANCE.md"
    );
    if let Some(report) = report {
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let claims = serde_json::to_value(&report.claims).unwrap();
        assert!(
            is_same(&json["claims"], &claims),
            "they follow from the figures"
        );
    }
}
