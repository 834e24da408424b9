//! Reports over a made-up run: ratios, verdicts, headings, tables, and pages that nothing can break out of.

use super::target::Verdict;
use super::*;

const CPU: &str = "server CPU per delivered event, µs";

fn run(label: &str, size: Option<&str>, columns: &[(&str, f64)]) -> Run {
    let column = |(name, value): &(&str, f64)| Column {
        name: (*name).to_owned(),
        figures: BTreeMap::from([(CPU.to_owned(), *value)]),
        histograms: BTreeMap::from([("delivery".to_owned(), vec![(0.5, 90), (4.0, 10)])]),
    };
    Run {
        label: label.to_owned(),
        size: size.map(str::to_owned),
        whole: BTreeMap::from([("server peak RSS, MiB".to_owned(), 40.0)]),
        columns: columns.iter().map(column).collect(),
        ..Run::default()
    }
}

fn played(runs: Vec<Run>) -> Played {
    Played {
        name: "steady".to_owned(),
        about: "watchers".to_owned(),
        scale: 1.0,
        swept: None,
        show: vec![CPU.to_owned()],
        compare: vec![Comparison {
            figure: CPU.to_owned(),
            to: "embedded".to_owned(),
        }],
        targets: Vec::new(),
        runs,
    }
}

fn two_servers() -> Played {
    played(vec![
        run("embedded", None, &[("target", 12.0)]),
        run("gateway", None, &[("socket loop", 2.0), ("target", 3.0)]),
    ])
}

/// A target with its places and bound; the fields that matter here.
fn target(of: &str, to: Option<&str>, at_most: f64) -> Target {
    Target {
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

fn report(scenarios: Vec<Played>) -> Report {
    let machine = Machine {
        cores: 2,
        processor: "CPU <x>".to_owned(),
        memory_mib: 1_024,
        kernel: "6".to_owned(),
    };
    Report {
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
    assert_eq!(target.verdict(&two_servers()), Verdict::Short);
    assert_eq!(target.bound(), "≤ 1.35 × gateway / socket loop");
}

#[test]
fn a_figure_may_be_bounded_by_itself_or_by_its_distance() {
    let mut target = target("gateway", None, 3.0);
    assert_eq!(
        (target.value(&two_servers()), target.verdict(&two_servers())),
        (Some(3.0), Verdict::Met)
    );
    assert_eq!(target.bound(), "≤ 3 µs");
    target.less = Some("gateway / socket loop".to_owned());
    assert_eq!(target.value(&two_servers()), Some(1.0));
    (target.at_most, target.at_least) = (None, Some(1.5));
    assert_eq!(target.verdict(&two_servers()), Verdict::Short);
}

#[test]
fn what_was_not_measured_is_not_judged() {
    for (of, to) in [
        ("real", None),
        ("gateway", Some("real")),
        ("gateway / nothing", None),
    ] {
        assert_eq!(
            target(of, to, 1.0).verdict(&two_servers()),
            Verdict::Unknown,
            "{of} {to:?}"
        );
    }
    let zero = played(vec![
        run("a", None, &[("target", 0.0)]),
        run("b", None, &[("target", 1.0)]),
    ]);
    assert_eq!(target("b", Some("a"), 1.0).verdict(&zero), Verdict::Unknown);
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
fn ratios_stand_under_the_figures() {
    let text = markdown::summary(&two_servers());
    let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap();
    let cells = |begin| {
        line(begin)
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        cells("|  "),
        ["", "", "embedded", "gateway: socket loop", "gateway", ""]
    );
    assert_eq!(
        cells("| server CPU per delivered event, µs")[2..5],
        ["12", "2", "3"]
    );
    assert_eq!(
        cells("| server CPU per delivered event × embedded")[2..5],
        ["1", "0.17", "0.25"]
    );
}

#[test]
fn many_runs_are_read_downwards() {
    let sizes: Vec<String> = (1..=7).map(|size| format!("{size}00")).collect();
    let runs = sizes
        .iter()
        .map(|size| run("gateway", Some(size), &[("x", 2.0)]));
    let mut swept = played(runs.collect());
    swept.swept = Some("--watchers".to_owned());
    let text = markdown::summary(&swept);
    assert!(
        text.lines()
            .any(|line| line.starts_with("| gateway at 700 |")),
        "{text}"
    );
    assert!(!text.contains("peak RSS"), "only what is shown: {text}");
    assert!(html::page(&report(vec![swept])).contains("<polyline"));
}

#[test]
fn a_column_that_says_nothing_is_left_out() {
    let mut played = two_servers();
    let empty = Column {
        name: "beyond the loop".to_owned(),
        ..Column::default()
    };
    played.runs[1].columns.push(empty);
    assert!(!markdown::summary(&played).contains("beyond the loop"));
    assert!(markdown::page(&report(vec![played])).contains("beyond the loop"));
}

#[test]
fn what_failed_is_told() {
    let mut bad = two_servers();
    bad.runs[0].error = Some("it did not start".to_owned());
    bad.runs[1].faults = vec!["lost <7>".to_owned()];
    let report = report(vec![bad]);
    assert!(!report.passed());
    let (text, html) = (markdown::page(&report), html::page(&report));
    assert!(
        text.contains("NOT PLAYED (embedded): it did not start")
            && text.contains("FAULT (gateway): lost <7>")
    );
    assert!(html.contains("FAULT (gateway): lost &lt;7&gt;"));
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
            column.figures = BTreeMap::from([(nasty.to_owned(), 1.0)]);
            column.histograms = BTreeMap::from([(nasty.to_owned(), vec![(1.0, 2), (2.0, 1)])]);
        }
    }
    let mut report = report(vec![played]);
    report.command = nasty.to_owned();
    report.versions = BTreeMap::from([(nasty.to_owned(), nasty.to_owned())]);
    let html = html::page(&report);
    assert!(!html.contains("<script"), "{html}");
    assert!(
        !html.contains("src=") && !html.contains("@import"),
        "the page needs nothing else"
    );
    let rows = markdown::page(&report);
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
    assert_eq!(html::page(&kept), html::page(&made));
    assert_eq!(markdown::page(&kept), markdown::page(&made));
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
            .all(|target| target.verdict(&played) == Verdict::Met)
    );
    played.runs[1].invalid = vec!["too few writes".to_owned()];
    assert!(
        within
            .iter()
            .all(|target| target.verdict(&played) == Verdict::Invalid)
    );
    let alone = target("embedded", None, 12.0);
    assert_eq!(alone.verdict(&played), Verdict::Met);
    let text = markdown::summary(&played);
    assert!(text.contains("INVALID (gateway): too few writes"), "{text}");
}
