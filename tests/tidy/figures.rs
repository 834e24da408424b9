//! README's figures are those of the committed report: docs/performance/report.json, made by loadtest/performance.sh.
//!
//! A figure is written between `<!-- figure: SCENARIO: WHAT -->` and `<!-- end -->`. If no report is committed, README must say so, and
//! only the marks are checked. A report may belong to an earlier commit with different sources, if README names that commit.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::source::root;
use crate::{assert_no_violations, assert_violation};

const README: &str = "README.md";
const REPORT: &str = "docs/performance/report.json";
const MARK: &str = "<!-- figure: ";
const MARK_END: &str = " -->";
const FIGURE_END: &str = "<!-- end -->";
/// The mark of statements about the report as a whole.
const BUILD: &str = "build";
const NO_REPORT: &str = "No measured report is committed";

/// The section `## Figures`.
fn section(readme: &str) -> &str {
    let (_, rest) = readme.split_once("\n## Figures\n").unwrap_or_default();
    rest.split("\n## ").next().unwrap_or_default()
}

/// The marks with their contents, and the text without them; an unclosed mark is a violation.
fn marked(text: &str) -> (Vec<(&str, &str)>, String, Vec<String>) {
    let mut parts = text.split(MARK);
    let mut rest = parts.next().unwrap_or_default().to_owned();
    let (mut figures, mut violations) = (Vec::new(), Vec::new());
    for part in parts {
        let figure = part.split_once(MARK_END).and_then(|(key, after)| {
            let (figure, after) = after.split_once(FIGURE_END)?;
            Some((key, figure, after))
        });
        let Some((key, figure, after)) = figure else {
            let begin: String = part.chars().take(40).collect();
            violations.push(format!("{README}: a mark that is not closed: {begin}"));
            continue;
        };
        figures.push((key, figure));
        rest.push_str(after);
    }
    (figures, rest, violations)
}

/// Numbers outside marks in the columns between the first and the last. Names such as p99 and HTTP/1.1 are not numbers.
fn unmarked_numbers(readme: &str) -> Vec<String> {
    let mut violations = Vec::new();
    for line in section(readme).lines().filter(|line| line.starts_with('|')) {
        let (_, rest, _) = marked(line);
        let cells: Vec<&str> = rest.split('|').collect();
        // The line begins and ends with a bar.
        let measured = cells.get(2..cells.len().saturating_sub(2));
        let is_number = |word: &&str| {
            let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
            word.starts_with(|c: char| c.is_ascii_digit())
        };
        let measured = measured.unwrap_or_default().iter();
        let numbers = measured
            .flat_map(|cell| cell.split_whitespace())
            .filter(is_number);
        let row = cells.get(1).copied().unwrap_or_default().trim();
        violations.extend(
            numbers.map(|number| format!("{README}: {row}: {number} is a number without a mark")),
        );
    }
    violations
}

/// Whether the file that a mark names measures the marked figure, as far as its text shows.
fn has_source(key: &str, read: impl Fn(&str) -> Option<String>) -> bool {
    let Some((scenario, what)) = key.split_once(": ") else {
        return false;
    };
    if let Some(bench) = scenario.strip_prefix("bench ") {
        return read(&format!("benches/{bench}.rs")).is_some();
    }
    let of = |folder: &str| read(&format!("loadtest/{folder}/{scenario}.yaml"));
    let text = of("scenarios").or_else(|| of("performance"));
    // A target of each run is named after the run, too.
    let of_each = what.split_once(": ").map_or(what, |(_, what)| what);
    text.is_some_and(|text| {
        let is_there = |claim: &String| text.contains(claim);
        let of_each = format!("what: {of_each}, ");
        [format!("what: {what},"), format!("what: '{what}',")]
            .iter()
            .any(is_there)
            || text.contains("of: each") && is_there(&of_each)
    })
}

/// Violations in README when there is no report.
fn violations_without(readme: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let (figures, _, mut violations) = marked(section(readme));
    violations.extend(unmarked_numbers(readme));
    let says_so = |(key, text): &(&str, &str)| *key == BUILD && text.starts_with(NO_REPORT);
    if !figures.iter().any(says_so) {
        violations.push(format!("{README}: does not say {NO_REPORT:?}"));
    }
    let unknown = figures
        .iter()
        .filter(|(key, _)| *key != BUILD && !has_source(key, &read));
    violations.extend(unknown.map(|(key, _)| format!("{README}: {key}: nothing measures it")));
    violations
}

/// Violations in README when there is a report; `sources` are git's hashes of the sources at the report's commit and of those committed
/// now.
fn violations_beside(readme: &str, report: &Value, sources: [Option<&str>; 2]) -> Vec<String> {
    let section = section(readme);
    let (figures, _, mut violations) = marked(section);
    violations.extend(unmarked_numbers(readme));
    for (key, figure) in figures.iter().filter(|(key, _)| *key != BUILD) {
        let of = |claim: &&Value| {
            let [scenario, what] = ["scenario", "what"].map(|field| claim[field].as_str());
            scenario
                .zip(what)
                .is_some_and(|(a, b)| *key == format!("{a}: {b}"))
        };
        let claim = report["claims"]
            .as_array()
            .and_then(|all| all.iter().find(of));
        match claim.map(|claim| claim["quote"].as_str().unwrap_or_default()) {
            None => violations.push(format!("{README}: {key}: the report has no such row")),
            Some(quote) if quote != *figure => violations.push(format!(
                "{README}: {key}: says {figure:?}, the report {quote:?}"
            )),
            Some(_) => {}
        }
    }
    if section.contains(NO_REPORT) {
        violations.push(format!("{README}: says {NO_REPORT:?}, but there is one"));
    }
    violations.extend(commit_violations(section, report, sources));
    violations
}

fn commit_violations(
    section: &str,
    report: &Value,
    [of_commit, now]: [Option<&str>; 2],
) -> Vec<String> {
    let mut violations = Vec::new();
    let commit = report["commit"].as_str().unwrap_or_default();
    let is_commit = commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit());
    if !is_commit {
        violations.push(format!("{REPORT}: not of a clean commit: {commit:?}"));
    }
    let said = report["source"].as_str();
    if said.is_none() || said != of_commit {
        violations.push(format!(
            "{REPORT}: its sources are {said:?}, those of commit {commit} are {of_commit:?}"
        ));
    }
    let named = section
        .split_once("Measured at commit `")
        .and_then(|(_, rest)| rest.split('`').next());
    match named {
        Some(named) if named != commit => violations.push(format!(
            "{README}: measured at commit {named}, the report is of commit {commit}"
        )),
        None if said != now => violations.push(format!(
            "{README}: the report is of commit {commit}, whose src is not the current one, and README does not say \"Measured at commit `{commit}`\""
        )),
        Some(_) | None => {}
    }
    violations
}

/// Git's hash of `src` at a commit.
fn source_of(commit: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--verify", "--quiet"]);
    let output = git
        .arg(format!("{commit}:src"))
        .current_dir(root())
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

#[test]
fn the_figures_of_readme_are_those_of_the_report() {
    let read = |path: &str| fs::read_to_string(root().join(path)).ok();
    let readme = read(README).unwrap();
    let (figures, ..) = marked(section(&readme));
    assert!(
        figures.len() > 10,
        "only {} figures are marked",
        figures.len()
    );
    let violations = match read(REPORT) {
        None => violations_without(&readme, read),
        Some(report) => {
            let report: Value = serde_json::from_str(&report).unwrap();
            let commit = report["commit"].as_str().unwrap_or_default();
            let (of_commit, now) = (source_of(commit), source_of("HEAD"));
            let sources = [of_commit.as_deref(), now.as_deref()];
            violations_beside(&readme, &report, sources)
        }
    };
    assert_no_violations("figures", violations);
}

/// A README with two figures, and a matching report.
fn canary() -> (String, Value) {
    let readme = "# x\n\n## Figures\n\n<!-- figure: build -->Measured at commit `4fb7e20` (now)<!-- end -->.\n\n\
        | what | of one | of the other | command |\n|---|---|---|---|\n\
        | 5 watchers | <!-- figure: steady: CPU -->2.6 µs [≤ 3 µs: met]<!-- end --> | p99 over HTTP/1.1 <!-- figure: steady: p99 -->7 ms<!-- end --> | x 1 |\n\n## Next\n\n| a | 5 |\n";
    let claim =
        |what: &str, quote: &str| json!({"scenario": "steady", "what": what, "quote": quote});
    let claims = [claim("CPU", "2.6 µs [≤ 3 µs: met]"), claim("p99", "7 ms")];
    let report = json!({"commit": "4fb7e20", "source": "tree1", "claims": claims});
    (readme.to_owned(), report)
}

const SAME: [Option<&str>; 2] = [Some("tree1"), Some("tree1")];
const OLDER: [Option<&str>; 2] = [Some("tree1"), Some("tree2")];

#[test]
fn a_readme_that_agrees_with_its_report_passes() {
    let (readme, report) = canary();
    assert_no_violations("canary", violations_beside(&readme, &report, SAME));
    // The report belongs to an earlier commit, which README names.
    assert_no_violations("canary", violations_beside(&readme, &report, OLDER));
    let silent = readme.replace("Measured at commit `4fb7e20` (now)", "Measured");
    assert_no_violations("canary", violations_beside(&silent, &report, SAME));
}

#[test]
fn changed_numbers_missing_rows_and_unmarked_numbers_are_found() {
    let (readme, report) = canary();
    let check = |from: &str, to: &str, says: &str| {
        let changed = readme.replace(from, to);
        assert_ne!(changed, readme);
        assert_violation(&violations_beside(&changed, &report, SAME), says);
    };
    check(
        "2.6 µs",
        "2.5 µs",
        "steady: CPU: says \"2.5 µs [≤ 3 µs: met]\", the report \"2.6 µs",
    );
    check(": met]", ": short]", "steady: CPU: says");
    check(
        "steady: p99 -->",
        "steady: p98 -->",
        "steady: p98: the report has no such row",
    );
    check(
        "p99 over",
        "3.1 ms, p99 over",
        "5 watchers: 3.1 is a number without a mark",
    );
    check(
        "7 ms<!-- end -->",
        "7 ms",
        "a mark that is not closed: steady: p99",
    );
    check(
        "Measured at",
        "No measured report is committed. Measured at",
        "but there is one",
    );
}

#[test]
fn a_report_of_another_commit_is_found() {
    let (readme, report) = canary();
    let with = |field: &str, value: &str| {
        let mut changed = report.clone();
        changed[field] = value.into();
        changed
    };
    let other = violations_beside(&readme, &with("commit", "0123abc"), SAME);
    assert_violation(
        &other,
        "measured at commit 4fb7e20, the report is of commit 0123abc",
    );
    for commit in ["unknown", "4fb7e20-dirty"] {
        let found = violations_beside(&readme, &with("commit", commit), SAME);
        assert_violation(&found, "not of a clean commit");
    }
    let silent = readme.replace("Measured at commit `4fb7e20` (now)", "Measured");
    assert_violation(
        &violations_beside(&silent, &report, OLDER),
        "whose src is not the current one",
    );
    // Git has no such commit, or its sources differ from the report's.
    for of_commit in [None, Some("tree3")] {
        let found = violations_beside(&readme, &report, [of_commit, Some("tree1")]);
        assert_violation(
            &found,
            "its sources are Some(\"tree1\"), those of commit 4fb7e20 are",
        );
    }
}

#[test]
fn without_a_report_readme_must_say_so_and_mark_what_is_measured() {
    let read = |path: &str| {
        let text = "targets:\n  - {what: CPU, figure: x}\n  - {what: 'p99', figure: y}\n";
        (path == "loadtest/scenarios/steady.yaml").then(|| text.to_owned())
    };
    let (with, _) = canary();
    let readme = with.replace("Measured at commit `4fb7e20` (now)", NO_REPORT);
    assert_no_violations("canary", violations_without(&readme, read));
    assert_violation(
        &violations_without(&with, read),
        "does not say \"No measured report",
    );
    let renamed = readme.replace("steady: p99", "steady: p98");
    assert_violation(
        &violations_without(&renamed, read),
        "steady: p98: nothing measures it",
    );
    let unmarked = readme.replace("p99 over", "3.1 ms, p99 over");
    assert_violation(
        &violations_without(&unmarked, read),
        "3.1 is a number without a mark",
    );
}
